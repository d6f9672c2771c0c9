"""Matches with the player of ``stop.evaluation`` while the run waits for them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from msgspec.structs import replace

from arena.types import RANDOM_BOT
from arena.wire.messages import Evaluate
from populations.controller.evaluation.pairings import (
    GOAL_PART,
    evaluation_pool,
    goal_pairs,
    validated_by,
)
from populations.controller.state.goals import has_reached_evaluation, seekers_of_evaluation
from populations.controller.state.state import ControllerState
from populations.records.rows import AssignmentRow
from tests.populations.controller.simulated import DUEL, TAG, World, make_world, tag_spec

GOAL = {"player": RANDOM_BOT, "score": 0.95}
MANY_STEPS = 40_000


def winning(members: str = "any", document: dict[str, object] = DUEL, **changes: object) -> World:
    """A run whose policies soon win every match against random play."""
    stop = {"evaluation": GOAL, "members": members, "agent_steps_per_policy": MANY_STEPS}
    world = make_world(
        {
            **document,
            "stop": stop,
            "pbt": {"exploit": "none"},
            "evaluation": {"share": 0.1},
            **changes,
        },
        tag_spec() if document is TAG else None,
    )
    world.learning = lambda trainee: 1000.0
    return world


def evaluations(world: World) -> list[Evaluate]:
    """Those of rated players that were decided in training."""
    (stopped,) = world.events("training_stopped")
    rows = {
        row.assignment_id: row.message
        for row in world.committed[: world.committed.index(stopped)]
        if isinstance(row, AssignmentRow)
    }
    found = [message for message in rows.values() if isinstance(message, Evaluate)]
    return [
        message for message in found if not list(validated_by(world.state.league, iter([message])))
    ]


@pytest.mark.parametrize(("members", "most_steps"), [("any", 12_000), ("all", 16_000)])
def test_a_run_ends_soon_after_its_policies_win_every_match(members: str, most_steps: int) -> None:
    world = winning(members, {**DUEL, "populations": {"player": {"size": 2}}})
    world.join()
    world.join()
    world.run()
    run = world.state.tables.run
    assert run.reason.startswith("stop.evaluation: ")
    steps = [row.agent_steps for row in world.state.tables.policies.values()]
    assert max(steps) < most_steps
    matches: Counter[bool] = Counter()
    for message in evaluations(world):
        for pairing in message.pairings:
            is_with_bot = any(player.player == RANDOM_BOT for player in pairing.seating.players)
            matches[is_with_bot] += pairing.num_matches
    # Each evaluation also has a pair with each bot, beside the goal's share.
    assert GOAL_PART <= matches[True] / matches.total() <= GOAL_PART + 0.15


def first_to_reach(seed: int) -> tuple[ControllerState, str] | None:
    """A run in which one population has its goal, and which; None: both reached it at once."""
    world = winning("any", TAG, seed=seed)
    world.join(populations=("predator",))
    world.join(populations=("prey",))
    rows = world.state.tables.policies
    found: set[str] = set()
    while not found:
        world.step()
        found = {
            row.population
            for row in rows.values()
            if has_reached_evaluation(
                world.state.settings.config, world.state.tables, world.state.indexes.goals, row
            )
        }
    return (world.state, found.pop()) if len(found) == 1 else None


def test_only_a_population_that_lacks_its_goal_is_waited_for() -> None:
    # One evaluation may reach both goals.
    state, reached = next(found for seed in range(20) if (found := first_to_reach(seed)))
    policies = state.tables.policies
    known = evaluation_pool(state.settings, state.indexes, state.blame.ledger, None)
    everybody = np.ones(len(known.players), dtype=bool)
    pairs = list(goal_pairs(state, known, may_play=everybody, num_pairs=8))
    assert pairs
    for rival, bot in pairs:
        assert known.players[rival].population != reached == known.players[bot].population
        assert known.players[bot].player.player == RANDOM_BOT
    lacking = {row.policy for row in policies.values() if row.population != reached}
    assert (
        seekers_of_evaluation(state.settings.config, state.tables, state.indexes.goals) == lacking
    )
    quarantined = min(lacking)
    policies[quarantined] = replace(policies[quarantined], state="quarantined")
    assert seekers_of_evaluation(
        state.settings.config, state.tables, state.indexes.goals
    ) == lacking - {quarantined}
    state.phase.name = "evaluating"
    assert not list(goal_pairs(state, known, may_play=everybody, num_pairs=8))
