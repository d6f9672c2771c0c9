from __future__ import annotations

from arena.types import Entrant, Seat
from populations.records.aggregates import PairRow
from populations.views.questions.results import payoff_cells

A, B, C = Entrant("a" * 64), Entrant("b" * 64), Entrant("bot:random")
SEATS = tuple(
    Seat(name=name, side=name, population="player", agents=(name,)) for name in ("home", "away")
)
PAIRS = [
    PairRow(
        kind="evaluate", first=A, second=B, first_seat=0, second_seat=1,
        wins=3.0, draws=1.0, losses=4.0, first_return_sum=-1.0, second_return_sum=2.0,
    ),
    PairRow(
        kind="evaluate", first=B, second=A, first_seat=0, second_seat=1,
        wins=2.0, draws=0.0, losses=0.0, first_return_sum=2.0, second_return_sum=-3.0,
    ),
    PairRow(kind="evaluate", first=A, second=C, first_seat=0, second_seat=1, wins=9.0),
]  # fmt: skip
NAMES: dict[tuple[str, str], str] = {("player", A): "player/p000", ("player", B): "player/p001"}


def test_each_pair_is_seen_from_both_players_over_all_seats() -> None:
    first, second = payoff_cells(PAIRS, seats=SEATS, names=NAMES)
    assert first == {
        "population": "player",
        "player": "player/p000",
        "opponent_population": "player",
        "opponent": "player/p001",
        "matches": 10,
        "wins": 3,
        "draws": 1,
        "losses": 6,
        "score": 0.35,
        "mean_return": -0.4,
    }
    assert (second["player"], second["wins"], second["losses"]) == ("player/p001", 6, 3)
    assert (second["score"], second["mean_return"]) == (0.65, 0.4)


def test_each_pair_of_seats_has_a_cell_of_its_own() -> None:
    cells = payoff_cells(PAIRS, seats=SEATS, names=NAMES, by_seats=True)
    seen = [
        (c["player"], c["seat"], c["opponent_seat"], c["wins"], c["losses"], c["mean_return"])
        for c in cells
    ]
    assert seen == [
        ("player/p000", "home", "away", 3, 4, -1.0 / 8),
        ("player/p000", "away", "home", 0, 2, -3.0 / 2),
        ("player/p001", "home", "away", 2, 0, 2.0 / 2),
        ("player/p001", "away", "home", 4, 3, 2.0 / 8),
    ]


def test_nobody_is_shown_who_has_no_name() -> None:
    assert payoff_cells(PAIRS[2:], seats=SEATS, names=NAMES) == []
