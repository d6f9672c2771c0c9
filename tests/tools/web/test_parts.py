"""Parts of a page that cannot be shown: they say so, and the rest stands."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from populations.records.tables import seal_of
from tests.tools.web.conftest import Client
from tools.show import html
from tools.show.html import guarded
from tools.web.export import write_export
from tools.web.pages.pages import PAGES
from tools.web.runs import named_runs

FAILS = "This part cannot be shown"


@pytest.fixture
def damaged_run(board_run: Path, tmp_path: Path) -> Path:
    """A run with an event that is no JSON any more, and a metric's line that is none."""
    run = tmp_path / "damaged"
    shutil.copytree(board_run, run)
    with closing(sqlite3.connect(run / "journal.db")) as connection:
        event = (1, "2026-01-31T12:00:00.000+00:00", "champion", "player/p000", "{")
        row = (*event, seal_of(event))
        connection.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", row)
        connection.commit()
    (run / "metrics.jsonl").write_bytes(b'\xff\n{"policy": "run", "agent_steps": 1, "a/b": 0.5}\n')
    return run


def test_one_bad_row_costs_the_parts_that_need_it(damaged_run: Path) -> None:
    client = Client([damaged_run])
    shown = {name: client.get(f"/damaged/{name}.html") for name in PAGES}
    assert {answer.status_code for answer in shown.values()} == {200}
    failing = {name for name, answer in shown.items() if FAILS in answer.text}
    assert "events" in failing
    assert failing.isdisjoint({"standings", "payoff", "metrics"})
    # Champions, curves and learners need events; the other parts of this page do not.
    assert shown["index"].text.count(FAILS) == 3
    assert "<h2>Standings of player" in shown["index"].text
    player = client.get("/damaged/player-p000.html").text
    assert "a row of events is damaged" in player
    assert "Results, worst first" in player
    # The status code tells a program about the failure.
    for name in ("events.json", "events.csv", "player-p000.json"):
        answer = client.get(f"/damaged/{name}")
        assert (answer.status_code, "is damaged" in answer.text) == (503, True)
    assert client.get("/damaged/standings.json").status_code == 200


def test_no_part_tells_where_the_run_is(damaged_run: Path) -> None:
    text = Client([damaged_run]).get("/damaged/events.html").text
    assert "journal.db" in text
    assert str(damaged_run.parent) not in text


def test_a_bad_line_of_metrics_is_told_on_their_page(damaged_run: Path) -> None:
    text = Client([damaged_run]).get("/damaged/metrics.html").text
    assert "Lines of metrics.jsonl that cannot be read: 1." in text
    assert "<h2>a/b" in text


def test_an_export_has_the_rest_and_confines_its_pages(damaged_run: Path, tmp_path: Path) -> None:
    assert write_export(named_runs([damaged_run]), tmp_path / "pages") > len(PAGES)
    pages = list((tmp_path / "pages").rglob("*.html"))
    assert FAILS in (tmp_path / "pages/damaged/events.html").read_text()
    assert not (tmp_path / "pages/damaged/events.csv").exists()
    assert (tmp_path / "pages/damaged/standings.csv").exists()
    for page in pages:
        assert '<meta http-equiv="Content-Security-Policy" content="default-src' in page.read_text()


def test_of_several_runs_one_that_cannot_be_read_leaves_the_others(
    damaged_run: Path, board_run: Path
) -> None:
    (damaged_run / "journal.db").write_text("no journal")
    client = Client([board_run, damaged_run])
    for path in ("/", "/metrics"):
        answer = client.get(path)
        assert (answer.status_code, "board" in answer.text) == (200, True)
    assert "cannot be read" in client.get("/").text


def test_whatever_a_part_raises_is_its_own(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The filter is removed, because a line of an earlier test may use up this second.
    monkeypatch.setattr(html.logger, "filters", [])
    (block,) = guarded("Ratings", lambda: [][0])
    assert (block.heading, block.is_alert) == ("Ratings", True)
    assert "IndexError" in block.about
    assert "Traceback" in caplog.text
