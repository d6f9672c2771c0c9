from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Literal, cast

import pytest

from arena.matches.seating import make_seats
from arena.types import Entrant, Tally
from populations.views.questions.inspection import Inspection
from populations.views.training import matches_document
from tests.populations.rows import make_tally, make_tally_row

BOT = Entrant("bot:random")
TEAM = make_seats(agents=("a", "b"), sides={"all": ("a", "b")}, populations={"player": ("a", "b")})
DUEL = make_seats(
    agents=("a", "b"), sides={"a": ("a",), "b": ("b",)}, populations={"player": ("a", "b")}
)


def inspection(seats: Any, kind: Literal["train", "evaluate"], tally: Tally) -> Inspection:
    row = make_tally_row(tally, kind=kind)
    run = SimpleNamespace(
        reader=SimpleNamespace(all_tallies=lambda: [row]),
        tables=SimpleNamespace(run=SimpleNamespace(run="r")),
        league=SimpleNamespace(seats=seats, training_seats=seats, checkpoints={}),
    )
    return cast(Inspection, run)


@pytest.mark.parametrize(
    ("seats", "kind", "num_pairs", "length_sum"),
    [
        # Ten episodes have 25 steps each; a match of two teams has one episode for each.
        (TEAM, "train", 0, 250),
        (TEAM, "evaluate", 1, 500),
        (DUEL, "train", 1, 250),
        (DUEL, "evaluate", 1, 250),
    ],
)
def test_the_mean_length_is_that_of_an_episode(
    seats: Any, kind: Literal["train", "evaluate"], num_pairs: int, length_sum: int
) -> None:
    pairs = [(0, 1, 5, 0, 5)] * num_pairs
    tally = make_tally((BOT, BOT), *pairs, matches=10, length_sum=length_sum)
    (shown,) = cast(Any, matches_document(inspection(seats, kind, tally), None)["tallies"])
    assert shown["mean_length"] == 25.0
