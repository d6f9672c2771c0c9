"""Expected lengths: the policy's own, its population's, the measured one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from arena.types import PolicyId
from tests.populations.controller.eager import transaction
from tests.populations.controller.simulated import World, make_world


def lengths(world: World, **known: float) -> None:
    tx = transaction(world)
    for name, length in known.items():
        row = world.state.tables.policies[PolicyId(f"player/{name}")]
        tx.put(replace(row, episode_length=length))


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({}, 40.0),  # as measured at launch
        ({"p001": 10.0, "p002": 30.0}, 20.0),  # the mean of the policies with a measurement
        ({"p000": 7.0, "p001": 10.0}, 7.0),  # the policy's own
    ],
)
def test_the_nearest_known_length_counts(known: dict[str, float], expected: float) -> None:
    world = make_world()
    world.state.measured.episode_length = 40.0
    lengths(world, **known)
    policy = world.state.tables.policies[PolicyId("player/p000")]
    assert world.state.measured.expected_length(policy) == expected
