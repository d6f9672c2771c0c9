"""Page of the differences of two runs: what `arena league RUN diff RUN2` prints."""

from __future__ import annotations

import html
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from populations.records.rows import EventRow
from populations.storage.journal import Journal
from tests.tools.league.documents import diff as diff_document
from tests.tools.web.conftest import HOSTILE, Client, hostile_run
from tests.tools.web.test_pages import MAX_BYTES, Elements
from tools.league.documents import view_document
from tools.web.content import shown
from tools.web.export import write_export
from tools.web.pace import LEAST_S
from tools.web.pages.diff import diff
from tools.web.runs import named_runs


def contents(document: Any) -> Any:
    """Return the content of a page of a document."""
    others = {"diff-with-b.html": "b", "diff-with-c.html": "c"}
    return diff(document, page="diff-with-b", ways=("", "../b/"), others=others)


def block_of(content: Any, heading: str) -> Any:
    (block,) = [one for one in content.blocks if one.heading == heading]
    return block


def test_the_document_is_that_of_the_command(board_run: Path, tag_run: Path) -> None:
    client = Client([board_run, tag_run])
    expected = view_document(board_run, "diff", other=str(tag_run))
    found = json.loads(client.get("/board/diff-with-tag.json").text)
    assert found == json.loads(json.dumps({"schema": 1, **expected}))
    lines = client.get("/board/diff-with-tag.csv").text.splitlines()
    assert lines[0] == "section,population,key,first,second"
    assert any(line.startswith("standings,player,1.player,player/p000,") for line in lines)


def test_runs_lead_to_their_differences(board_run: Path, tag_run: Path) -> None:
    client = Client([board_run, tag_run])
    overview = client.get("/board/index.html").text
    assert overview.count('href="diff-with-tag.html"') == 2
    page = client.get("/board/diff-with-tag.html").text
    assert "<h1>Differences of board and tag</h1>" in page
    assert 'href="diff-with-tag.html" aria-current="page"' in page
    assert "No matches between them: the runs play different environments." in page
    for address in ("player-p000", "../tag/prey-p000", "../tag/index", "index"):
        assert f'href="{address}.html"' in page
        assert client.get(f"/board/{address}.html").status_code == 200
    # Of several others the overview has the list, and the page leads from one to the next.
    several = Client([board_run, tag_run, board_run])
    assert 'href="index.html#other-runs"' in several.get("/board/payoff.html").text
    page = several.get("/board/diff-with-board-2.html").text
    assert 'href="diff-with-tag.html"><bdi>tag' in page
    assert "both are the same run" in page


def test_one_run_has_no_differences(client: Client) -> None:
    assert "Differences" not in client.get("/board/index.html").text
    for name in ("diff-with-board", "diff-with-", "diff", "diff /etc"):
        for kind in ("html", "csv", "json"):
            assert client.get(f"/board/{name}.{kind}").status_code == 404


def test_sections_show_what_differs_and_name_what_does_not() -> None:
    content = contents(diff_document())
    assert content.part == "b"
    figures = block_of(content, "Figures")
    assert figures.table.is_wrapped
    assert figures.note == "The same in both: name connect_four."
    rows = [[cell.text for cell in row.cells] for row in figures.table.rows]
    assert rows[0] == ["run", *(cell.text for cell in figures.table.rows[0].cells[1:])]
    assert [row[0] for row in rows[1:]] == ["reason", "elapsed", "agent steps", "matches"]
    settings = block_of(content, "Configuration")
    assert settings.note == "3 different, 158 equal."
    first, second = (cell.text for cell in settings.table.rows[1].cells[1:])
    # Equal for longer than a cell.
    assert first != second
    pbt = block_of(content, "PBT of player")
    assert [row.cells[0].text for row in pbt.table.rows] == ["exploited"]
    assert pbt.note == "The same in both: policies 4."


def test_charts_have_both_runs_in_a_row_and_a_table_behind() -> None:
    content = contents(diff_document())
    charts = [block for block in content.blocks if block.chart]
    assert [block.heading for block in charts] == [
        "Standings of player",
        "Scores of the champions of player",
    ]
    for block in charts:
        assert block.table.rows
        points = block.chart.data["layer"][1]
        assert len(points["encoding"]["color"]["scale"]["domain"]) == 2
        assert all(row["low"] <= row["value"] <= row["high"] for row in points["data"]["values"])
    # No policy of the other run is rated: its places are empty, and no zeros.
    rows = charts[0].chart.data["layer"][1]["data"]["values"]
    assert [(row["name"], row["run"], row["player"]) for row in rows] == [
        (str(place), "old", f"p{place:03}") for place in range(1, 8)
    ]


def test_a_result_of_both_is_a_line_to_copy() -> None:
    block = block_of(contents(diff_document()), "Scores of the champions of player")
    line = block.table.rows[0].line
    assert line.startswith("against bot:random: player/p000 of old: score ")
    assert all("\n" not in row.line for row in block.table.rows)


def test_a_change_of_either_run_is_seen(board_run: Path, tag_run: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    shutil.copytree(board_run, first)
    shutil.copytree(board_run, second)
    now_s = 0.0
    runs = named_runs([first, second])
    for run in runs.values():
        run.pace.clock = lambda: now_s
    before = runs["a"].etag(["diff-with-b"])
    for path in (first, second):
        now_s += 1000.0
        event = EventRow(
            sequence=1, time="2026-01-01T00:00:00+00:00", kind="kept", subject="player/p000",
            data={},
        )  # fmt: skip
        with Journal.open(path / "journal.db") as journal:
            journal.commit([event])
        after = runs["a"].etag(["diff-with-b"])
        assert after != before
        before = after
    now_s += LEAST_S
    assert runs["a"].etag(["diff-with-b"]) == before


def test_hostile_texts_stay_text(board_run: Path, tmp_path: Path) -> None:
    hostile = hostile_run(board_run, tmp_path / "run", HOSTILE[:-1])
    client = Client([board_run, hostile])
    for path in ("/board/diff-with-run.html", "/run/diff-with-board.html", "/run/index.html"):
        page = client.get(path).text
        assert len(page) < MAX_BYTES
        elements = Elements()
        elements.feed(page)
        for data in elements.data:
            json.loads(data)
        assert not re.search("[\u202e\u2066\x1b\x07]", page)
        assert ">49<" not in page
    # Not because they were left out.
    page = html.unescape(client.get("/board/diff-with-run.html").text)
    assert all(f"environment.kwargs.{shown(text)[:15]}" in page for text in HOSTILE[:-1])


@pytest.mark.slow
def test_an_export_has_the_pages_of_each_pair(
    board_run: Path, tag_run: Path, tmp_path: Path
) -> None:
    write_export(named_runs([board_run, tag_run]), tmp_path)
    for page in ("board/diff-with-tag", "tag/diff-with-board"):
        assert "<h1>Differences of" in (tmp_path / f"{page}.html").read_text()
        assert (tmp_path / f"{page}.csv").is_file()
