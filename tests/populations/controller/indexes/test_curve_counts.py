"""Counts that curves show: each ghost and each copy once."""

from __future__ import annotations

from msgspec.structs import replace

from arena.types import PolicyId
from populations.controller.indexes.curve_counts import Curves
from populations.records.rows import GenerationRow
from tests.populations.rows import make_generation, make_ghost

ANN, BOB = PolicyId("player/p000"), PolicyId("player/p001")


def generation(policy: PolicyId, number: int, cause: str) -> GenerationRow:
    return make_generation(policy, number, cause=cause, copies=1 if number else 0)


def test_each_ghost_counts_once_however_often_its_row_changes() -> None:
    curves = Curves()
    for row in (
        make_ghost(ANN, 1),
        make_ghost(ANN, 2),
        replace(make_ghost(ANN, 1), linked=True),
        make_ghost(BOB, 1),
    ):
        curves.apply(row)
    assert curves.ghosts == {ANN: 2, BOB: 1}


def test_of_generations_only_copies_count_and_each_once() -> None:
    curves = Curves()
    first = generation(ANN, 1, "exploit")
    for row in (first, generation(ANN, 2, "explore"), replace(first, agent_steps_end=9)):
        curves.apply(row)
    assert curves.copies == {ANN: 1}
    assert curves.ghosts == {}
