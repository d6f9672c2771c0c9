from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from arena.matches.pair_scores import wilson
from populations.league.ratings import Interval
from populations.views.questions.champions import lead, opponents


def test_wilson_has_the_published_interval() -> None:
    # Source of 15 of 148: Newcombe 1998, table I, method 3: 0.0624 to 0.1605.
    assert wilson(15 / 148, 148) == pytest.approx((0.0624, 0.1605), abs=5e-5)
    assert wilson(0.0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert wilson(1.0, 20)[1] == 1.0


def cell(opponent: str, score: float | None, matches: int, **other: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "population": "player",
        "player": "p0",
        "opponent_population": "player",
        "opponent": opponent,
        "matches": matches,
        "wins": 0,
        "draws": 0,
        "losses": 0,
        "score": score,
        "mean_return": None,
    }
    return {**row, **other}


def test_opponents_are_worst_first_without_the_player_itself() -> None:
    cells = [
        cell("good", 0.9, 10),
        cell("few", 0.25, 4),
        cell("many", 0.25, 40),
        cell("p0", 0.1, 10),
        cell("never", None, 0),
        cell("other", 0.0, 10, player="p1"),
        # A player of another population may have the same name.
        cell("p0", 0.5, 10, opponent_population="prey"),
    ]
    rows = cast(Any, opponents(cells, population="player", player="p0"))
    assert [row["opponent"] for row in rows] == ["many", "few", "p0", "good"]
    assert rows[0]["score_low"] < 0.25 < rows[0]["score_high"]
    assert rows[0]["score_high"] < rows[1]["score_high"]


def line(player: str, weights: str | None, rating: float | None, **other: Any) -> Any:
    about = {"kind": "policy", "state": "active", **other}
    return SimpleNamespace(player=player, weights=weights, rating=rating, **about)


def test_the_lead_is_over_the_next_other_weights_by_the_differences_own_interval() -> None:
    best = line("p0", "a", 100.0)
    lines = [
        best,
        line("p0@1", "a", 100.0),
        line("p1", "b", 90.0, state="quarantined"),
        line("bot:random", None, 95.0, kind="bot"),
        line("p2", "c", 80.0),
        line("p3", "d", 70.0),
    ]

    def difference(first: tuple[str, str], second: tuple[str, str]) -> Interval | None:
        return {"c": Interval(20.0, 12.0, 28.0)}.get(second[1]) if first[1] == "a" else None

    fit: Any = SimpleNamespace(difference=difference)
    assert lead("player", best, lines, fit) == {
        "next": "p2",
        "lead": 20.0,
        "lead_low": 12.0,
        "lead_high": 28.0,
    }
    alone = lead("player", best, [best], fit)
    assert set(alone.values()) == {None}
