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

from tests.tools.league.documents import DOCUMENTS
from tests.tools.web.conftest import HOSTILE, Client, asked_for, hostile_run, standing
from tools.web.content import shown
from tools.web.pages.hyperparameters import hyperparameters
from tools.web.pages.overview import _alerts, _champions
from tools.web.pages.pages import PAGES
from tools.web.pages.payoff import payoff
from tools.web.pages.ratings import MAX_LINES, ratings

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
    client = Client([hostile_run(board_run, tmp_path / "run", [text])])
    names = [f"{name}.html" for name in (*PAGES, "player-p000")] + ["metrics.html?page=2"]
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
        # Neither controls nor marks that turn text round: as their escapes, or not at all.
        assert not re.search("[\u202e\u2066\x1b\x07]", page), name
        assert ">49<" not in page
        if shown(text)[:15] in html.unescape(page):
            seen.add(name.partition(".")[0])
    # Not because it was left out.
    assert seen >= {
        *("index", "standings", "lineage", "hyperparameters", "metrics", "learners", "events"),
        "player-p000",
    }


def test_a_map_of_players_who_have_not_met_says_so() -> None:
    lines = [standing("player/p000", 100.0), standing("player/p001", 50.0)]
    cells = [
        {"player": player, "opponent": "bot:random", "opponent_population": "player", "score": 1.0}
        for player in ("player/p000", "player/p001")
    ]
    content: Any = payoff(
        asked_for("payoff", payoff={"payoff": cells}, standings={"populations": {"player": lines}})
    )
    (block,) = content.blocks
    assert block.note.endswith("None of these have met each other: the CSV has all results.")


def test_who_is_no_better_than_untrained_is_no_champion_without_a_note() -> None:
    document = DOCUMENTS["champion"]
    block: Any = _champions(asked_for("index", champion=document))
    assert block.note == (
        "nobody is surely better than untrained: player/p000 has 0 agent steps; the most likely "
        "reasons: too little training so far, or rewards that cannot be learned from"
    )
    better = [{**one, "unproven": None} for one in document["champions"]]
    block = _champions(asked_for("index", champion={"champions": better}))
    assert block.note == ""


def test_wide_intervals_do_not_flatten_curves() -> None:
    def curve(low: float, high: float) -> Any:
        points = [
            {"agent_steps": 100 * i, "rating": 100.0 * i, "rating_low": low, "rating_high": high,
             "generation": 0, "cause": "start", "time": ""}
            for i in range(3)
        ]  # fmt: skip
        populations = {"player": [{"player": "player/p000", "points": points}]}
        standings = {"populations": {"player": [standing("player/p000", 100.0)]}}
        documents: Any = {"ratings": {"populations": populations, "champions": []}}
        content: Any = ratings(asked_for("ratings", standings=standings, **documents))
        return content.blocks[0].chart.data.get("range")

    assert curve(-50.0, 250.0) is None
    assert curve(-3000.0, 250.0) == [-200.0, 250.0]


def test_schedules_are_those_of_the_best_rated() -> None:
    values = {f"player/p{n:03d}": {"gamma": 0.9 + n / 1000} for n in range(MAX_LINES + 1)}
    generations = [
        {"policy": policy, "population": "player", "generation": 0, "cause": "start",
         "agent_steps_begin": 0, "agent_steps_end": None, "hyperparameters": own}
        for policy, own in reversed(values.items())
    ]  # fmt: skip
    lines = [standing(policy, -100.0 * n) for n, policy in enumerate(values)]
    documents: Any = {"hyperparameters": {"policies": values, "generations": generations}}
    standings = {"populations": {"player": lines}}
    content: Any = hyperparameters(asked_for("hyperparameters", standings=standings, **documents))
    _, schedule = content.blocks
    drawn = {one["name"]: one["y"] for one in schedule.chart.data["series"]}
    best = [*values.items()][:MAX_LINES]
    assert drawn == {policy.split("/")[1]: [own["gamma"]] * 2 for policy, own in best}


def test_the_advice_of_a_long_alert_is_not_cut_off() -> None:
    alert = {"name": "pbt_undecided", "what": "few matches, " * 30, "advice": "Raise a key."}
    (block,) = _alerts({"alerts": [alert]})
    assert block.lines[0].endswith("Raise a key.")
