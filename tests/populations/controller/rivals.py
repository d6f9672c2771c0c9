"""Simulated runs in which two populations learn against each other in one assignment."""

from __future__ import annotations

from typing import cast

from arena.types import PolicyId
from arena.wire.messages import Train
from populations.records.rows import PolicyRow
from tests.populations.controller.simulated import TAG, World, make_world, tag_spec

ENVIRONMENT: dict[str, object] = {**cast("dict[str, object]", TAG["environment"]), "num_envs": 32}
RIVALS: dict[str, object] = {
    **TAG,
    "environment": ENVIRONMENT,
    "matchmaking": {"rivals": "learning", "kind": "uniform", "latest_ratio": 0.25},
    "learners": 2,
}


def rivals_world(num_learners: int = 2, **sections: object) -> World:
    """A run with learners that have nothing done yet."""
    world = make_world({**RIVALS, "learners": num_learners, **sections}, tag_spec())
    for _ in range(num_learners):
        world.join()
    return world


def trained(world: World) -> list[Train]:
    """Training that was finished, without the making of first weights."""
    return [message for message in world.messages(Train, "finished") if message.agent_steps]


def policy(world: World, name: str) -> PolicyRow:
    """A policy as it is now."""
    return world.state.tables.policies[PolicyId(name)]
