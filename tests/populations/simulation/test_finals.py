"""Finals take no longer than was said, whoever plays and however long matches last."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from populations.config.run_config import load_config
from populations.controller.evaluation.finals import longest_s
from populations.records.aggregates import Row
from populations.records.rows import EventRow
from populations.simulation.environment import simulated_config, simulated_run
from populations.simulation.league import default_model
from populations.simulation.world import make_world, start

MOST = 1.2
"""Time that finals take, over the time that is said."""


def asked_and_taken(
    *, num_learners: int, matches_per_s: float, num_policies: int, agent_steps: int
) -> tuple[float, float, bool]:
    """Return the most seconds of finals as said, those taken, and whether time ended them."""
    changes = (
        *(f"stop.agent_steps_per_policy={agent_steps}", f"learners={num_learners}", "seed=1"),
        *("pbt.share=even", "pbt.warm_up_agent_steps=1000000", "pbt.ready_agent_steps=500000"),
    )
    config = simulated_config(load_config("connect_four", changes), num_policies=num_policies)
    world = make_world(simulated_run(config), default_model(config), matches_per_s=matches_per_s)
    stopped = False

    def watch(rows: Sequence[Row]) -> None:
        nonlocal stopped
        stopped |= any(isinstance(row, EventRow) and row.kind == "finals_stopped" for row in rows)

    world.watch = watch
    start(world)
    begin_s = 0.0
    while world.advance():
        rows = world.state.tables.assignments.values()
        if world.state.phase.name == "training" or any(row.kind == "train" for row in rows):
            begin_s = world.now_s
    training_s = world.state.tables.run.training_s
    asked_s = longest_s(training_s=training_s, num_learners=num_learners)
    return asked_s, world.now_s - begin_s, stopped


SLOW, LONG, FAST = 0.5, 4.0, 60.0
"""Matches of a learner in a second. Of the slowest, evaluation in training can have taken more than
its share, which finals have less."""


@pytest.mark.parametrize(
    ("num_learners", "matches_per_s", "num_policies", "agent_steps"),
    [
        (1, LONG, 3, 400_000),
        (3, LONG, 3, 400_000),
        (3, SLOW, 3, 400_000),
        *(
            pytest.param(*regime, 1_000_000, marks=pytest.mark.slow)
            for regime in (
                (1, FAST, 4), (3, FAST, 4), (1, FAST, 12), (3, FAST, 12),
                (1, LONG, 12), (3, LONG, 12), (1, SLOW, 12), (3, SLOW, 12),
            )
        ),
    ],
)  # fmt: skip
def test_finals_keep_the_time_that_is_said(
    num_learners: int, matches_per_s: float, num_policies: int, agent_steps: int
) -> None:
    asked_s, taken_s, stopped = asked_and_taken(
        num_learners=num_learners,
        matches_per_s=matches_per_s,
        num_policies=num_policies,
        agent_steps=agent_steps,
    )
    assert 0.0 < taken_s <= MOST * asked_s
    # A short time is not kept by playing nothing.
    assert matches_per_s != LONG or (stopped and taken_s >= 0.8 * asked_s)
