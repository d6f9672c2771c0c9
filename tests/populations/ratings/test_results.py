from __future__ import annotations

from typing import Literal

from arena.types import AssignmentId, Entrant, PairScore, Seat, Tally
from populations.core import Result
from populations.ratings.results import evaluation_results, matches_by_entrant, merge_results
from populations.types import TallyRow

BOT, WEIGHTS = Entrant("bot:random"), Entrant("a" * 64)
SEATS = tuple(
    Seat(name=name, side=name, population=population, agents=(name,))
    for name, population in (("hunter", "predator"), ("runner", "prey"))
)


def row(
    kind: Literal["train", "evaluate"], first: Entrant, second: Entrant, *outcome: int
) -> TallyRow:
    wins, draws, losses = outcome
    return TallyRow(
        sequence=1,
        assignment_id=AssignmentId(1),
        kind=kind,
        tally=Tally(
            entrants=(first, second),
            matches=sum(outcome),
            pairs=(PairScore(first=0, second=1, wins=wins, draws=draws, losses=losses),),
            return_sum=(0.0, 0.0),
            return_sum_of_squares=(0.0, 0.0),
            length_sum=0,
        ),
    )


def test_only_evaluation_counts_and_each_population_has_its_own_scale() -> None:
    rows = [
        row("train", BOT, WEIGHTS, 100, 0, 0),
        row("evaluate", BOT, WEIGHTS, 1, 2, 3),
        row("evaluate", BOT, WEIGHTS, 10, 20, 30),
        row("evaluate", BOT, BOT, 7, 0, 1),
    ]
    merged = evaluation_results(rows, seats=SEATS)
    predator, prey = ("predator", BOT), ("prey", BOT)
    assert set(merged) == {
        Result(
            first=predator, second=("prey", WEIGHTS), seats=(0, 1), wins=11, draws=22, losses=33
        ),
        Result(first=predator, second=prey, seats=(0, 1), wins=7, draws=0, losses=1),
    }
    assert matches_by_entrant(merged) == {predator: 74, prey: 8, ("prey", WEIGHTS): 66}


def test_one_player_against_itself_is_no_result() -> None:
    seats = tuple(Seat(name=name, side=name, population="player", agents=(name,)) for name in "xy")
    assert evaluation_results([row("evaluate", WEIGHTS, WEIGHTS, 3, 0, 1)], seats=seats) == ()


def test_both_views_of_a_result_merge_and_swapped_seats_do_not() -> None:
    seen = [
        Result(first="a", second="b", seats=(0, 1), wins=1, draws=2, losses=3),
        Result(first="b", second="a", seats=(1, 0), wins=30, draws=20, losses=10),
        Result(first="b", second="a", seats=(0, 1), wins=5, draws=0, losses=0),
    ]
    expected = (
        Result(first="a", second="b", seats=(0, 1), wins=11, draws=22, losses=33),
        Result(first="b", second="a", seats=(0, 1), wins=5, draws=0, losses=0),
    )
    assert merge_results(seen) == expected
    assert merge_results(seen[::-1]) == expected
