from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Literal, cast

import pytest

from arena.matches.seating import make_seats
from arena.types import AssignmentId, Entrant, PairScore, Tally
from populations.records.rows import TallyRow
from populations.views.questions.inspection import Inspection
from populations.views.training import matches_document

BOT = Entrant("bot:random")
TEAM = make_seats(agents=("a", "b"), sides={"all": ("a", "b")}, populations={"player": ("a", "b")})
DUEL = make_seats(
    agents=("a", "b"), sides={"a": ("a",), "b": ("b",)}, populations={"player": ("a", "b")}
)


def inspection(seats: Any, kind: Literal["train", "evaluate"], tally: Tally) -> Inspection:
    row = TallyRow(sequence=1, assignment_id=AssignmentId(1), kind=kind, tally=tally)
    run = SimpleNamespace(
        reader=SimpleNamespace(all_tallies=lambda: [row]),
        tables=SimpleNamespace(run=SimpleNamespace(run="r")),
        league=SimpleNamespace(seats=seats, training_seats=seats, checkpoints={}),
    )
    return cast(Inspection, run)


@pytest.mark.parametrize(
    ("seats", "kind", "num_pairs", "length_sum"),
    [
        # Ten episodes of 25 steps: once, and where two teams are compared once each.
        (TEAM, "train", 0, 250),
        (TEAM, "evaluate", 1, 500),
        (DUEL, "train", 1, 250),
        (DUEL, "evaluate", 1, 250),
    ],
)
def test_the_mean_length_is_that_of_an_episode(
    seats: Any, kind: Literal["train", "evaluate"], num_pairs: int, length_sum: int
) -> None:
    pair = PairScore(first=0, second=1, wins=5, draws=0, losses=5)
    tally = Tally(
        entrants=(BOT, BOT),
        matches=10,
        pairs=(pair,) * num_pairs,
        return_sum=(0.0, 0.0),
        return_sum_of_squares=(0.0, 0.0),
        length_sum=length_sum,
    )
    (shown,) = cast(Any, matches_document(inspection(seats, kind, tally), None)["tallies"])
    assert shown["mean_length"] == 25.0
