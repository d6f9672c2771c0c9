"""Texts of strangers on pages: they stay text, and no page grows by them."""

from __future__ import annotations

import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from populations.views.charts.figures import MAX_LINES, MAX_PLAYERS
from tests.populations.views import documents
from tests.tools.web.conftest import HOSTILE, Client, asked_for, hostile_run, words
from tools.show.html import short
from tools.web.pages.league import payoff
from tools.web.pages.pages import PAGES, view_page

MAX_BYTES = 300_000
"""Bytes of a page of a few players, whatever their names are."""


class Elements(HTMLParser):
    """Elements of a page, none of which is a label's."""

    def __init__(self) -> None:
        super().__init__()
        self._in_data = False
        self.data: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag != "img"
        assert not [name for name, _ in attrs if name.startswith("on") or name == "style"]
        for name, value in attrs:
            if name in ("href", "src"):
                # Addresses are relative, within the site.
                parts = urlsplit(value or "")
                assert (parts.scheme, parts.netloc) == ("", ""), value
        if tag == "script":
            assert {name for name, _ in attrs} in ({"defer", "src"}, {"type"})
            self._in_data = ("type", "application/json") in attrs

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._in_data = False

    def handle_data(self, data: str) -> None:
        if self._in_data:
            self.data.append(data)


@pytest.mark.slow
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_text_stays_text(board_run: Path, tmp_path: Path, text: str) -> None:
    client = Client([hostile_run(board_run, tmp_path / "run", [text]), board_run])
    names = [f"{name}.html" for name in (*PAGES, "player-p000", "diff-with-board")]
    names.append("metrics.html?page=2")
    seen = set()
    for name in names:
        answer = client.get(f"/run/{name}")
        assert answer.status_code == 200, name
        page = answer.text
        assert len(page) < MAX_BYTES, (name, len(page))
        elements = Elements()
        elements.feed(page)
        for data in elements.data:
            json.loads(data)
        # Control and bidirectional characters are escaped or removed.
        assert not re.search("[\u202e\u2066\x1b\x07]", page), name
        assert ">49<" not in page
        if short(text)[:15] in html.unescape(page):
            seen.add(name.partition(".")[0])
    # The pages were not simply left out.
    assert seen >= {
        *("index", "standings", "lineage", "hyperparameters", "metrics", "learners", "events"),
        *("player-p000", "diff-with-board"),
    }


def test_schedules_are_those_of_the_best_rated() -> None:
    values = {f"player/p{n:03d}": {"gamma": 0.9 + n / 1000} for n in range(MAX_LINES + 1)}
    generations = [
        {"policy": policy, "population": "player", "generation": 0, "cause": "start",
         "agent_steps_begin": 0, "agent_steps_end": None, "hyperparameters": own}
        for policy, own in reversed(values.items())
    ]  # fmt: skip
    lines = [documents.standing(one, "policy", -100.0 * n) for n, one in enumerate(values)]
    document = {"policies": values, "generations": generations, "search_space": {}}
    standings = {"populations": {"player": lines}}
    asked = asked_for("hyperparameters", standings=standings, hyperparameters=document)
    schedule, _ = view_page(asked)
    spec: Any = schedule.chart
    # Policies with a label at their end are coloured; the others are grey.
    drawn = {
        row["name"] for one in spec["layer"] for row in one.get("data", spec["data"])["values"]
    }
    best = {policy.split("/")[1] for policy in [*values][:MAX_LINES]}
    assert drawn - {f"{MAX_LINES - 5} others"} == best


def test_results_of_a_big_league_are_those_of_the_best() -> None:
    names = [f"player/p{n:03d}" for n in range(MAX_PLAYERS + 8)]
    lines = [documents.standing(name, "policy", -float(n)) for n, name in enumerate(names)]
    cells = [
        {"population": "player", "player": one, "opponent_population": "player",
         "opponent": other, "score": 0.5, "matches": 2}
        for one in names for other in names if one != other
    ]  # fmt: skip
    asked = asked_for(
        "payoff", payoff={"payoff": cells}, standings={"populations": {"player": lines}}
    )
    drawn, listed = payoff(asked)
    assert drawn.chart is not None
    assert listed.total == MAX_PLAYERS * (MAX_PLAYERS - 1)
    last = f"p{MAX_PLAYERS + 7:03d}"
    assert last not in {row[0] for row in words(listed)}
