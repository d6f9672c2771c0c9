"""Counts that curves show: each ghost and each copy once."""

from __future__ import annotations

from msgspec.structs import replace

from arena.types import Entrant, PolicyId
from populations.controller.indexes.curve_counts import Curves
from populations.records.rows import GenerationRow, GhostRow

ANN, BOB = PolicyId("player/p000"), PolicyId("player/p001")


def ghost(policy: PolicyId, number: int) -> GhostRow:
    return GhostRow(
        player=f"{policy}@{number}",  # type: ignore[arg-type]
        policy=policy,
        population="player",
        agent_steps=number,
        generation=0,
        weights_digest="d",  # type: ignore[arg-type]
        key=f"ghosts/{number}",
        checkpoint="c",
    )


def generation(policy: PolicyId, number: int, cause: str) -> GenerationRow:
    return GenerationRow(
        entrant=Entrant(f"{policy}#{number}"),
        policy=policy,
        population="player",
        generation=number,
        cause=cause,  # type: ignore[arg-type]
        parent=None,
        copies=1 if number else 0,
        hyperparameters={},
        agent_steps_begin=0,
    )


def test_each_ghost_counts_once_however_often_its_row_changes() -> None:
    curves = Curves()
    for row in (ghost(ANN, 1), ghost(ANN, 2), replace(ghost(ANN, 1), linked=True), ghost(BOB, 1)):
        curves.apply(row)
    assert curves.ghosts == {ANN: 2, BOB: 1}


def test_of_generations_only_copies_count_and_each_once() -> None:
    curves = Curves()
    first = generation(ANN, 1, "exploit")
    for row in (first, generation(ANN, 2, "explore"), replace(first, agent_steps_end=9)):
        curves.apply(row)
    assert curves.copies == {ANN: 1}
    assert curves.ghosts == {}
