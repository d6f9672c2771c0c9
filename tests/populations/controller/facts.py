"""Facts that the journal has as rows, added up from the events that tell of them."""

from __future__ import annotations

from collections.abc import Iterable

from populations.controller.state.transaction import NOT_MADE
from populations.records.rows import EventRow
from populations.records.tables import Tables


def assert_facts_are_what_events_tell(tables: Tables, events: Iterable[EventRow]) -> None:
    """Check PBT's counts and what it waits for, alerts, champions, and evaluation's share.

    Args:
        tables: Rows of a controller.
        events: All that its run has committed.
    """
    marks: list[int] = []
    made = 0
    postponed: dict[str, object] = {}
    alerts: dict[tuple[object, str], object] = {}
    champions: dict[object, str] = {}
    share: object = None
    for row in events:
        answered = row.data.get("marks")
        if isinstance(answered, int):
            marks.append(answered)
            made += row.kind not in NOT_MADE
            postponed.pop(row.subject, None)
        match row.kind:
            case "decision_postponed":
                postponed[row.subject] = row.data["reason"]
            case "alert":
                alerts[row.data["name"], row.subject] = row.data["what"]
            case "alert_cleared":
                del alerts[row.data["name"], row.subject]
            case "champion":
                champions[row.data["population"]] = row.subject
            case "training_stopped":
                share = row.data["evaluation_share"]
    assert (tables.run.pbt_decisions, tables.run.pbt_marks) == (made, sum(marks))
    assert tables.run.share_reached == share
    assert [(row.policy, row.reason) for row in tables.postponed.values()] == [*postponed.items()]
    assert [(key, row.what) for key, row in tables.alerts.items()] == [*alerts.items()]
    announced = {name: row.champion_player for name, row in tables.ratings.items()}
    assert {name: player for name, player in announced.items() if player} == champions
