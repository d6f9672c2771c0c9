"""Slots of the launcher, by the configuration."""

from __future__ import annotations

import pytest

from populations.controller.state.leases import make_slots
from tests.populations.controller.simulated import DUEL, TAG, make_world, tag_spec


@pytest.mark.parametrize(
    ("learners", "is_deterministic", "expected"),
    [(3, False, [(), (), ()]), (3, True, [()]), (1, True, [()])],
)
def test_a_count_is_so_many_free_slots_and_one_in_deterministic_mode(
    learners: int, is_deterministic: bool, expected: list[tuple[str, ...]]
) -> None:
    world = make_world({**DUEL, "learners": learners, "deterministic": is_deterministic})
    assert [slot.populations for slot in make_slots(world.state.config)] == expected


@pytest.mark.parametrize("is_deterministic", [False, True])
def test_counts_by_population_bind_slots(is_deterministic: bool) -> None:
    document = {**TAG, "learners": {"predator": 2, "prey": 1}, "deterministic": is_deterministic}
    world = make_world(document, tag_spec())
    bound = [slot.populations for slot in make_slots(world.state.config)]
    predators = [("predator",)] * (1 if is_deterministic else 2)
    assert bound == [*predators, ("prey",)]
