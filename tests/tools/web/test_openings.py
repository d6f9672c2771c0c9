from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.tools.web.conftest import Client, asked_for, hostile_run
from tools.web.pages.openings import openings

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
    return openings(asked_for("openings", openings=document)).blocks


def test_shares_and_scores_are_in_windows_of_the_commonest_actions() -> None:
    rows = [row(0, 1, 60), row(0, 2, 40), row(2, 2, 75), row(2, 1, 20), row(2, None, 5)]
    shares, scores = blocks_of(rows, SUMMARY)
    drawn = [(row["name"], row["x"], row["share"]) for row in shares.chart.data["data"]["values"]]
    assert drawn == [
        ("action 1", 0, 0.6),
        ("action 2", 0, 0.4),
        ("action 1", 20, 0.2),
        ("action 2", 20, 0.75),
        ("others", 20, 0.05),
    ]
    cells = scores.chart.data["layer"][0]["data"]["values"]
    assert {row["score"] for row in cells} == {0.5}
    # The table has the others, too.
    assert len(shares.table.rows) == 5
    cells = [cell.text for cell in shares.table.rows[-1].cells]
    assert cells == ["20", "29", "100", "others", "5", "0.05", "-0.05 to 0.15"]
    assert "Now action 2 is played most, in 75% of the matches" in shares.note
    assert "has changed 2 times in windows of 10 agent steps" in shares.note
    assert "26% of the mix changes." in shares.note


def test_mixes_that_return_are_told() -> None:
    (shares, _) = blocks_of([row(0, 1, 100)], {**SUMMARY, "period_agent_steps": 1_500})
    assert "mixes return after 1,500 agent steps." in shares.note


def test_rare_actions_are_counted_and_left_to_the_table() -> None:
    rows = [row(0, action, 20 - action) for action in range(12)]
    shares, _ = blocks_of(rows, SUMMARY)
    assert len({row["name"] for row in shares.chart.data["data"]["values"]}) == 10
    assert "3 rarer actions" in shares.note
    assert len(shares.table.rows) == 12


def test_the_champions_rows_stand_for_themselves() -> None:
    own = {"player": "player/p001"}
    rows = [row(0, 1, 100), row(0, 2, 30, **own)]
    headings = [one.heading for one in blocks_of(rows, SUMMARY, {**SUMMARY, **own})]
    assert headings == [
        "Shares: player_0, all policies",
        "Scores: player_0, all policies",
        "Shares: player_0, p001, of the champion",
        "Scores: player_0, p001, of the champion",
    ]


def test_games_without_a_score_have_shares_alone() -> None:
    nothing = {"score": None, "score_low": None, "score_high": None}
    (only,) = blocks_of([row(0, 1, 100, **nothing)], SUMMARY)
    assert only.heading == "Shares: player_0, all policies"


def test_the_page_has_what_the_journal_has(board_run: Path, tmp_path: Path) -> None:
    text = Client([hostile_run(board_run, tmp_path / "run", [])]).get("/run/openings.html").text
    # Three of four matches.
    assert "Now action 3 is played most, in 75% of the matches" in text
    label = 'aria-label="share of matches of first decisions of player_0, all policies'
    (_, spec) = text.split(label, 1)
    assert '"share": 0.75' in spec.split("</script>")[0]


def test_a_seat_without_rows_says_why(client: Client) -> None:
    counted, uncounted = ({**SEAT, "is_counted": known} for known in (True, False))
    assert "yet" in blocks_of([], counted)[0].note
    assert "are not counted" in blocks_of([], uncounted)[0].note
    # Its tallies are of no openings.
    assert "has told its first decisions yet" in client.get("/board/openings.html").text
