"""Page of the differences of two runs: what `arena league RUN diff RUN2` prints."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from populations.storage.journal import Journal
from tests.populations.rows import make_event
from tests.populations.views.test_diff import differences as document_of
from tests.populations.views.test_diff import first_run, second_run
from tests.tools.web.conftest import Client, said, text_of, words
from tools.league.documents import view_document
from tools.show.html import Links
from tools.web.pace import LEAST_S
from tools.web.pages.log import differences
from tools.web.pages.page_request import PageRequest
from tools.web.runs import named_runs


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
    assert "No matches between them: the runs play different environments." in text_of(page)
    for address in ("player-p000", "../tag/prey-p000", "../tag/index", "index"):
        assert f'href="{address}.html"' in page
        assert client.get(f"/board/{address}.html").status_code == 200
    # With several other runs the overview lists them, and each page links to the next.
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


def test_sections_show_what_differs_and_charts_have_both_runs_in_a_row(tmp_path: Path) -> None:
    document = document_of(first_run(tmp_path / "one"), second_run(tmp_path / "two"))
    links = Links(names={"player/p000": "player-p000"})
    asked = PageRequest(
        documents={"diff-with-b": document},
        links=links,
        page="diff-with-b",
        second=Links(base="../b/"),
    )
    found = list(differences(asked))
    blocks = {block.heading: block for block in found}
    figures = blocks["Differences of one and two"]
    assert figures.is_wrapped
    assert said(figures.below)[0].startswith("the same in both: name test")
    assert [cell.href for cell, _ in figures.head] == ["", "index.html", "../b/index.html"]
    rows = [row[0] for row in words(figures)]
    assert {"elapsed", "agent steps", "matches"} <= {*rows}
    assert "name" not in rows
    charts: dict[str, Any] = {name: block.chart for name, block in blocks.items() if block.chart}
    assert list(charts) == [
        "Ratings of the best policies of player in both runs",
        "Scores of the champions of player against bots",
    ]
    for chart in charts.values():
        runs = {row["run"] for row in chart["layer"][1]["data"]["values"]}
        assert runs == {"one", "two"}


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
        with Journal.open(path / "journal.db") as journal:
            journal.commit([make_event("kept", "player/p000")])
        after = runs["a"].etag(["diff-with-b"])
        assert after != before
        before = after
    now_s += LEAST_S
    assert runs["a"].etag(["diff-with-b"]) == before
