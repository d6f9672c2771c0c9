from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.tools.web.conftest import Client, asked_for, hostile_run, said, text_of, words
from tools.web.pages.pages import view_page

SEAT = {"population": "player", "seat": "player_0", "player": None}


def row(window: int, action: int | None, count: int, **about: Any) -> dict[str, Any]:
    share = count / 100
    return {
        **SEAT,
        "window": window,
        "agent_steps_from": 10 * window,
        "agent_steps_to": 10 * window + 9,
        "matches": 100,
        "action": action,
        "label": "others" if action is None else f"action {action}",
        "count": count,
        "share": share,
        "share_low": share - 0.1,
        "share_high": share + 0.1,
        "score": 0.5,
        "score_low": 0.4,
        "score_high": 0.6,
        **about,
    }


SUMMARY = {
    **SEAT,
    "is_counted": True,
    "windows": 3,
    "window_agent_steps": 10,
    "action": 2,
    "label": "action 2",
    "share": 0.75,
    "since_agent_steps": 20,
    "favourites": 3,
    "mean_change": 0.26,
    "period_agent_steps": None,
}


def blocks_of(rows: list[dict[str, Any]], *summaries: dict[str, Any]) -> Any:
    document = {"summary": list(summaries), "openings": rows}
    return list(view_page(asked_for("openings", openings=document)))


def test_shares_and_scores_stand_over_the_table_of_all_rows() -> None:
    rows = [row(0, 1, 60), row(0, 2, 40), row(2, 2, 75), row(2, 1, 20), row(2, None, 5)]
    shares, scores, table = blocks_of(rows, SUMMARY)
    assert (shares.heading, scores.heading) == (
        "Shares: player_0, all policies",
        "Scores: player_0, all policies",
    )
    assert shares.chart is not None
    assert scores.chart is not None
    assert words(table)[-1][1:6] == ["20", "100", "others", "0.050", "-0.050"]
    (told,) = said(shares.above)
    assert "Now action 2 is played most, in 75% of the matches" in told
    assert "has changed 2 times in windows of 10 agent steps" in told
    assert "26% of the mix changes." in told


def test_mixes_that_return_are_told() -> None:
    (shares, *_) = blocks_of([row(0, 1, 100)], {**SUMMARY, "period_agent_steps": 1_500})
    assert said(shares.above)[0].endswith("mixes return after 1,500 agent steps.")


def test_games_without_a_score_have_shares_alone() -> None:
    nothing = {"score": None, "score_low": None, "score_high": None}
    shares, table = blocks_of([row(0, 1, 100, **nothing)], SUMMARY)
    assert shares.heading == "Shares: player_0, all policies"
    assert table.chart is None


def test_the_page_has_what_the_journal_has(board_run: Path, tmp_path: Path) -> None:
    text = Client([hostile_run(board_run, tmp_path / "run", [])]).get("/run/openings.html").text
    # Three of four matches, two of their three points.
    assert "Now action 3 is played most, in 75% of the matches" in text_of(text)
    assert '"share": 0.75' in text


def test_a_seat_without_rows_says_why(client: Client) -> None:
    counted, uncounted = ({**SEAT, "is_counted": known} for known in (True, False))
    assert "yet" in said(blocks_of([], counted)[0].above)[0]
    assert "are not counted" in said(blocks_of([], uncounted)[0].above)[0]
    # Its tallies are of no openings.
    assert "has told its first decisions yet" in client.get("/board/openings.html").text
