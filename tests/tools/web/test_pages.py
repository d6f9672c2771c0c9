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
from tools.web.pages.overview import _alerts, _champions
from tools.web.pages.pages import PAGES
from tools.web.pages.payoff import payoff

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


def test_the_advice_of_a_long_alert_is_not_cut_off() -> None:
    alert = {"name": "pbt_undecided", "what": "few matches, " * 30, "advice": "Raise a key."}
    (block,) = _alerts({"alerts": [alert]})
    assert block.lines[0].endswith("Raise a key.")
