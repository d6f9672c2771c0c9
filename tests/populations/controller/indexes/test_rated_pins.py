"""The best-rated checkpoint of each policy stays, whatever comes after it."""

from __future__ import annotations

from typing import Any

import pytest

from arena.types import Digest, PolicyId
from arena.wire.messages import Trainee
from populations.controller.indexes.rated_pins import RatedPins
from populations.records.rows import CheckpointRow
from tests.populations.controller.simulated import DUEL, World, make_world

PEAK = 2000
"""Agent steps after which policies forget what they know."""

DOCUMENT: dict[str, Any] = {
    **DUEL,
    "populations": {"player": {"size": 3}},
    "ghosts": {"every_agent_steps": 10**6},
    "pbt": {"exploit": "none", "explore": "none"},
    "checkpoints": {"keep": 1},
    "evaluation": {"share": 0.5},
    "stop": {"agent_steps_per_policy": 8000},
}


def collapsing(trainee: Trainee) -> float:
    """Return Elo per 1000 agent steps: 200 up to the peak, then a fall by as much."""
    return 200.0 if trainee.agent_steps < PEAK else -200.0


def best_of(world: World) -> dict[PolicyId, CheckpointRow]:
    origins = world.state.league.checkpoints
    rows = (
        origins[Digest(entrant)]
        for ratings in world.state.tables.ratings.values()
        for entrant in ratings.best
    )
    return {row.policy: row for row in rows}


@pytest.mark.slow
def test_the_best_rated_checkpoint_stays_when_a_policy_gets_worse() -> None:
    world = make_world(DOCUMENT, joined=1, learning=collapsing)
    tables = world.state.tables
    for _ in range(600):
        for row in best_of(world).values():
            assert tables.checkpoints[row.key].state == "present", row
        if world.over:
            break
        world.step()
    best = best_of(world)
    assert best.keys() == tables.policies.keys()
    for policy in tables.policies.values():
        assert policy.agent_steps >= 8000
        # The peak is at 2000 agent steps; a checkpoint is made each 500.
        assert best[policy.policy].agent_steps <= PEAK + 1000
        present = [
            row
            for row in tables.checkpoints.values()
            if row.policy == policy.policy and row.state == "present"
        ]
        # The newest, the one that the standing is about, the best; a first one of the finals.
        assert len(present) <= 4


def test_a_checkpoint_that_no_fit_has_covered_stays_until_one_has() -> None:
    world = make_world(DOCUMENT, joined=1)
    while not world.state.tables.records:
        for learner in list(world.given):
            event = world.work(learner)
            if event is not None:
                world.handle(event)
    assert not world.state.tables.ratings, "no fit has landed"
    retention = world.state.indexes.retention
    world.state.indexes.rated_pins = RatedPins()
    world.state.indexes.rated_pins.refresh(
        retention, league=world.state.league, contenders=world.state.fits.contenders
    )
    evaluated = {
        world.state.league.checkpoints[Digest(entrant)].key
        for _, entrant in world.state.tables.records
        if Digest(entrant) in world.state.league.checkpoints
    }
    held = {key for kind, keys in retention._needs.items() if kind[0] == "rated" for key in keys}
    assert evaluated
    assert evaluated <= held
