from __future__ import annotations

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from populations.records.rows import EventRow
from populations.storage.journal import Journal
from tests.tools.web.conftest import Client

HOSTILE = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "\"' onmouseover=alert(1) x='",
    "\u202egnp.exe",
    "\x1b[31mred\x07",
    "{{ 7 * 7 }}",
    "x" * 1_000_000,
)


class Elements(HTMLParser):
    """Elements of a page, none of which is a label's."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag != "img"
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag == "script":
            assert {name for name, _ in attrs} in ({"defer", "src"}, {"type"})


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_label_is_text(board_run: Path, tmp_path: Path, text: str) -> None:
    path = tmp_path / "run"
    shutil.copytree(board_run, path)
    time = "2026-01-01T00:00:00+00:00"
    event = EventRow(
        sequence=1, time=time, kind="learner_joined", subject=text, data={"host": text}
    )
    with Journal.open(path / "journal.db") as journal:
        journal.commit([event])
    client = Client([path])
    for name in ("index", "events", "learners", "player-p000"):
        page = client.get(f"/run/{name}.html").text
        assert len(page) < 200_000
        Elements().feed(page)
        assert not re.search("[\u202e\x1b\x07]", page)
        assert ">49<" not in page
