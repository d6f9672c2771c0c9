from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.populations.views import documents
from tests.tools.web.conftest import Client, asked_for, hostile_run, said, text_of, words
from tools.web.pages.pages import view_page

SUMMARY = {
    "windows": 3,
    "window_agent_steps": 1000,
    "label": "action 4",
    "share": 0.75,
    "since_agent_steps": 2000,
    "favourites": 3,
    "mean_change": 0.26,
}


def blocks_of(rows: list[dict[str, Any]], **summary: Any) -> Any:
    """Return the blocks of the page of rows of one seat."""
    document = documents.openings_of(rows or [documents.opening(0, 1, 9, 9)])
    document["openings"] = rows
    for one in document["summary"]:
        one |= {**SUMMARY, **summary}
    return list(view_page(asked_for("openings", openings=document)))


def test_what_is_played_is_told_over_the_table_of_all_rows() -> None:
    rows = documents.openings()["openings"][:4]
    shares, scores, table = blocks_of(rows, period_agent_steps=1_500)
    assert [one.chart is None for one in (shares, scores, table)] == [False, False, True]
    assert words(table)[-1][1:5] == ["2,000", "20", "action 4", "0.250"]
    (told,) = said(shares.above)
    assert "Now action 4 is played most, in 75% of the matches" in told
    assert "has changed 2 times in windows of 1,000 agent steps" in told
    assert told.endswith("26% of the mix changes; mixes return after 1,500 agent steps.")


def test_games_without_a_score_have_shares_alone() -> None:
    shares, table = blocks_of([documents.opening(0, 1, 100, 100, score=None)])
    assert shares.heading == "Shares: player_0, all policies"
    assert table.chart is None


def test_the_page_has_what_the_journal_has(board_run: Path, tmp_path: Path) -> None:
    text = Client([hostile_run(board_run, tmp_path / "run", [])]).get("/run/openings.html").text
    # Three of four matches, two of their three points.
    assert "Now action 3 is played most, in 75% of the matches" in text_of(text)
    assert '"share": 0.75' in text


def test_a_seat_without_rows_says_why(client: Client) -> None:
    counted, uncounted = (blocks_of([], is_counted=known)[0] for known in (True, False))
    assert "yet" in said(counted.above)[0]
    assert "are not counted" in said(uncounted.above)[0]
    # Its tallies are of no openings.
    assert "has told its first decisions yet" in client.get("/board/openings.html").text
