"""Choice of rows: kinds, players, times and limits."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from arena.errors import ConfigError
from populations.views.views import VIEWS
from tests.populations.views import documents
from tools.league.narrowing import (
    checked_kinds,
    limited,
    select_rows,
    since_time,
)

NOW = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)


def test_an_unknown_kind_is_refused_with_the_nearest() -> None:
    assert checked_kinds(["exploited", "kept"]) == ("exploited", "kept")
    with pytest.raises(ConfigError, match=r"no kind of event 'exploitd'; nearest: exploited"):
        checked_kinds(["exploitd"])


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("10m", datetime(2026, 1, 2, 11, 50, tzinfo=UTC)),
        ("2h ago", datetime(2026, 1, 2, 10, 0, tzinfo=UTC)),
        ("1.5d", datetime(2026, 1, 1, 0, 0, tzinfo=UTC)),
        ("2026-01-01T10:30", datetime(2026, 1, 1, 10, 30, tzinfo=UTC)),
        ("2026-01-01T10:30+02:00", datetime(2026, 1, 1, 8, 30, tzinfo=UTC)),
        ("9" * 30 + "d", datetime.min.replace(tzinfo=UTC)),
    ],
)
def test_a_time_is_written_as_it_is_or_as_time_ago(text: str, time: datetime) -> None:
    assert since_time(text, now=NOW) == time


@pytest.mark.parametrize("text", ["yesterday", "10x", "", "-5m"])
def test_another_time_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--since takes a time"):
        since_time(text)


def event(minute: int, kind: str, **data: Any) -> dict[str, Any]:
    time = f"2026-01-01T00:{minute:02d}:00+00:00"
    return {"sequence": minute, "time": time, "kind": kind, "subject": "player/p001", **data}


def test_events_are_selected_by_player_and_time() -> None:
    rows = [
        event(1, "exploited", donor="player/p000"),
        event(2, "kept"),
        event(3, "train_assigned", opponents=[["player/p000@000000000005"]], subject="7"),
        event(4, "exploited", donor="player/p0001"),
    ]

    def chosen(**options: Any) -> list[object]:
        return [row["sequence"] for row in select_rows(rows, **options)]

    assert chosen() == [1, 2, 3, 4]
    # A policy is chosen with its ghosts, but not another one whose name begins like it.
    assert chosen(player="player/p000") == [1, 3]
    assert chosen(since=datetime(2026, 1, 1, 0, 3, tzinfo=UTC)) == [3, 4]


def test_a_limit_keeps_what_matters_most() -> None:
    first, hidden = limited(documents.standings(), VIEWS["standings"], 2)
    assert hidden == 3
    lines = first["populations"]["player"]
    assert [line["player"] for line in lines] == ["player/p001", "player/p001@000000001000"]
    rated = [{"population": "player", "player": one} for one in ("player/p001", "player/p000")]
    payoff = {**documents.payoff(), "players": rated}
    # The row is the best player's worst result.
    (cell,) = limited(payoff, VIEWS["payoff"], 1)[0]["payoff"]
    assert cell == documents.cell("player/p001", "player/p000", 0.75)
    last, _ = limited({"events": [event(n, "kept") for n in range(5)]}, VIEWS["events"], 2)
    assert [row["sequence"] for row in last["events"]] == [3, 4]
    assert limited(documents.standings(), VIEWS["standings"], None)[1] == 0
