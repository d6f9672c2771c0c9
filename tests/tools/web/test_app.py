from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event

from msgspec import structs

from populations.storage.journal import Journal
from tests.tools.web.conftest import Client
from tools.web.making import Made, make_documents
from tools.web.pages.pages import PAGES
from tools.web.runs import named_runs


def test_every_page_answers(client: Client) -> None:
    for name, page in PAGES.items():
        answer = client.get(f"/board/{name}.html")
        assert answer.status_code == 200
        assert f"<h1>{page.title}</h1>" in answer.text
        # Each link leads to an existing page.
        assert 'aria-current="page"' in answer.text


def test_several_runs_are_listed(board_run: Path, tag_run: Path) -> None:
    client = Client([board_run, tag_run, board_run])
    text = client.get("/").text
    for slug in ("board", "tag", "board-2"):
        assert f'href="{slug}/index.html"' in text
        assert client.get(f"/{slug}/index.html").status_code == 200


def test_a_page_that_has_not_changed_is_not_sent_again(client: Client) -> None:
    first = client.get("/board/payoff.html")
    again = client.get("/board/payoff.html", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert first.headers["cache-control"] == "private, no-cache"
    old = client.get("/board/payoff.html", headers={"if-none-match": '"old", W/"older"'})
    assert old.status_code == 200


def test_scripts_are_kept_for_ever_by_their_version(client: Client) -> None:
    text = client.get("/board/index.html").text
    source = text.split('src="../static/vega.min.js?v=')[1].split('"')[0]
    kept = client.get(f"/static/vega.min.js?v={source}").headers["cache-control"]
    assert kept == "private, max-age=31536000, immutable"
    other = client.get("/static/vega.min.js?v=other").headers["cache-control"]
    assert other == "private, no-cache"


def test_a_number_of_a_part_may_be_anything(client: Client) -> None:
    for number in ("0", "-1", "x", "9" * 30, "\u0663", ""):
        assert client.get(f"/board/events.html?page={number}").status_code == 200


def test_a_run_that_cannot_be_read_says_why(tmp_path: Path, board_run: Path) -> None:
    run = tmp_path / "broken"
    run.mkdir()
    (run / "run.yaml").write_bytes((board_run / "run.yaml").read_bytes())
    (run / "journal.db").write_text("no journal")
    answer = Client([run]).get("/")
    assert answer.status_code == 503
    assert "journal" in answer.text


def test_a_page_comes_by_itself_once_it_is_computed(board_run: Path) -> None:
    free = Event()

    def make(run: Path, views: Sequence[str]) -> Made:
        assert free.wait(30.0)
        return make_documents(run, views)

    client = Client([board_run], make=make, wait_s=0.0)
    for path in ("/", "/board/ratings.html", "/board/player-p000.html"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert "<h2>Being computed" in answer.text
        assert 'data-poll-s="1.0"' in answer.text
        assert "etag" not in answer.headers
        assert answer.headers["cache-control"] == "no-store"
    for path in ("/board/ratings.json", "/board/ratings.csv", "/metrics"):
        answer = client.get(path)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        assert "being computed, ask again" in answer.text
    free.set()
    deadline_s = time.monotonic() + 60.0
    while "Being computed" in (text := client.get("/board/ratings.html").text):
        assert time.monotonic() < deadline_s
    assert "<h1>Ratings</h1>" in text


def test_runs_that_are_not_read_yet_are_listed(board_run: Path, tag_run: Path) -> None:
    free = Event()

    def make(run: Path, views: Sequence[str]) -> Made:
        assert run.name == "board" or free.wait(30.0)
        return make_documents(run, views)

    client = Client([board_run, tag_run], make=make, wait_s=0.0)
    deadline_s = time.monotonic() + 60.0
    while (text := client.get("/").text).count("Being computed") > 1:
        assert time.monotonic() < deadline_s
    assert 'data-poll-s="1.0"' in text
    free.set()
    while "Being computed" in (text := client.get("/").text):
        assert time.monotonic() < deadline_s
    assert 'data-poll-s="30.0"' in text


def test_a_run_that_has_ended_is_looked_at_until_its_page_is_of_its_end(
    board_run: Path, tmp_path: Path
) -> None:
    path, now_s = tmp_path / "run", 0.0
    shutil.copytree(board_run, path)
    runs = named_runs([path])
    runs["run"].pace.clock = lambda: now_s
    client = Client(runs)
    assert 'data-poll-s="30.0"' in client.get("/run/standings.html").text
    # The time is long enough for the status to be stale, but not the standings.
    kept = runs["run"]._kept
    (standings,) = (group for group in kept if "standings" in group)
    for name, one in kept[standings].items():
        kept[standings][name] = replace(one, took_s=100.0)
    now_s = 1000.0
    with Journal.open(path / "journal.db") as journal:
        row = journal.load().run
        assert row is not None
        journal.commit([structs.replace(row, state="finished")])
    text = client.get("/run/standings.html").text
    assert "finished" in text
    assert 'data-poll-s="5.0"' in text
    now_s = 10_000.0
    assert 'data-poll-s="0.0"' in client.get("/run/standings.html").text
