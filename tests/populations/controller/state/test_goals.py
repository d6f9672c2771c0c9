"""Runs that end by results against a bot and by success rates."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from arena.types import Digest, Entrant
from populations.controller.indexes.stop_goals import StopGoals
from populations.controller.phases import limit_reached
from populations.controller.state.goals import goal_reached, has_reached_evaluation, unreported
from populations.controller.state.state import ControllerState
from populations.records.rows import AssignmentRow, PolicyRow
from tests.populations.controller.simulated import DUEL, make_world
from tests.populations.rows import (
    make_assignment,
    make_checkpoint,
    make_tally,
    make_tally_row,
    make_train,
    make_trainee,
)


def told(state: ControllerState, policy: PolicyRow, metrics: Mapping[str, float]) -> AssignmentRow:
    trainee = make_trainee(policy.policy, generation=policy.generation)
    message = make_train(trainee)
    return make_assignment(message, status="finished", agent_steps=100, metrics=metrics)


@pytest.mark.parametrize(
    ("members", "score"),
    [("any", 0.3), ("all", 0.2), pytest.param("all", 0.6, marks=pytest.mark.slow)],
)
def test_a_score_against_a_bot_ends_the_run(members: str, score: float) -> None:
    goal = {"player": "bot:random", "score": score}
    stop = {"evaluation": goal, "members": members, "agent_steps_per_policy": 10**9}
    world = make_world({**DUEL, "stop": stop}, joined=2)
    world.run()
    run = world.state.tables.run
    assert run.state == "finished"
    assert run.reason.startswith("stop.evaluation: ")
    assert f"score against bot:random is {score} or more" in run.reason
    assert ("every active policy" in run.reason) == (members == "all")
    reached = [
        has_reached_evaluation(
            world.state.settings.config, world.state.tables, world.state.indexes.goals, row
        )
        for row in world.state.tables.policies.values()
    ]
    assert any(reached)


@pytest.mark.parametrize(
    ("lost", "won", "is_reached"), [(0, 400, True), (60, 400, True), (400, 90, False)]
)
def test_early_losses_leave_the_bound_when_newer_weights_win(
    lost: int, won: int, is_reached: bool
) -> None:
    """By one window of all 460 matches, 60 losses would stay for 800 more."""
    goal = {"player": "bot:random", "score": 0.95}
    world = make_world({**DUEL, "stop": {"evaluation": goal}})
    state = world.state
    policy = next(iter(state.tables.policies.values()))
    digests = [Digest(f"{number:064x}") for number in range(10)]
    made = {
        digest: make_checkpoint(
            digest, policy=policy.policy, generation=policy.generation, agent_steps=number
        )
        for number, digest in enumerate(digests)
    }
    # Two of the oldest weights lose, the others win.
    results = [(lost // 2, 0)] * 2 + [(0, won // 8)] * 8
    for number, (digest, (losses, wins)) in enumerate(zip(digests, results, strict=True)):
        tally = make_tally((digest, "bot:random"), (0, 1, wins, 0, losses))
        row = make_tally_row(tally, number)
        if tally.matches:
            state.indexes.goals.add_tally(row, made)
    assert (
        has_reached_evaluation(state.settings.config, state.tables, state.indexes.goals, policy)
        == is_reached
    )


def test_one_game_that_is_repeated_reaches_no_goal() -> None:
    """300 wins against a bot that draws nothing, all of them the same two games."""
    script = Entrant("bot:script:Bot")
    world = make_world({**DUEL, "stop": {"evaluation": {"player": "bot:random", "score": 0.9}}})
    policy = next(iter(world.state.tables.policies.values()))
    digest = Digest("1" * 64)
    made = make_checkpoint(
        digest, policy=policy.policy, generation=policy.generation, agent_steps=1
    )
    matches = {}
    for repeats_games in (False, True):
        goals = StopGoals(script, repeats_games=repeats_games)
        for number in range(30):
            home = number % 2
            entrants = (digest, script) if home else (script, digest)
            score = (0, 1, 10 * home, 0, 10 - 10 * home)
            tally = make_tally(entrants, score, distinct=1)
            row = make_tally_row(tally, number)
            goals.add_tally(row, {digest: made})
        met = goals.met(policy)
        assert met is not None
        assert met.sum(1000.0).points == met.matches
        matches[repeats_games] = met.matches
    assert matches == {False: 300.0, True: 2.0}


def test_a_success_rate_by_any_and_by_all() -> None:
    for members in ("any", "all"):
        world = make_world({**DUEL, "stop": {"success_rate": 0.9, "members": members}})
        state = world.state
        policies = list(state.tables.policies.values())
        for policy in policies[:-1]:
            metrics = {"episode/count": 100.0, "environment/success_mean": 0.9}
            state.indexes.goals.add_assignment(told(state, policy, metrics))
        assert (
            goal_reached(state.settings.config, state.tables, state.indexes.goals) is not None
        ) == (members == "any")
        low = {"episode/count": 99.0, "environment/success_mean": 1.0}
        state.indexes.goals.add_assignment(told(state, policies[-1], low))
        assert (
            goal_reached(state.settings.config, state.tables, state.indexes.goals) is not None
        ) == (members == "any")
        state.indexes.goals.add_assignment(told(state, policies[-1], low))
        assert str(limit_reached(state.settings.config, state.indexes, trained_s=0.0)).startswith(
            "stop.success_rate: "
        )


def test_an_environment_without_success_is_told() -> None:
    world = make_world({**DUEL, "stop": {"success_rate": 0.9}})
    state = world.state
    policy = next(iter(state.tables.policies.values()))
    state.indexes.goals.add_assignment(told(state, policy, {"episode/count": 99.0}))
    assert unreported(state.settings.config, state.indexes.goals) is None
    state.indexes.goals.add_assignment(told(state, policy, {"episode/count": 1.0}))
    assert 'infos[agent]["success"]' in str(unreported(state.settings.config, state.indexes.goals))
    heard = {"episode/count": 1.0, "environment/success_mean": 0.0}
    state.indexes.goals.add_assignment(told(state, policy, heard))
    assert unreported(state.settings.config, state.indexes.goals) is None


def test_a_fold_of_the_rows_is_what_was_measured() -> None:
    """A resume reads the same rows again."""
    world = make_world({**DUEL, "stop": {"success_rate": 0.9}})
    policy = next(iter(world.state.tables.policies.values()))
    rows = [
        told(world.state, policy, {"episode/count": 60.0, "environment/success_mean": rate})
        for rate in (0.1, 0.5, 1.0)
    ]
    for row in rows:
        world.state.indexes.goals.add_assignment(row)
    folded = StopGoals.fold(None, tallies=(), assignments=rows, origins={})
    # The oldest is left out: the two newest have 100 episodes without it.
    assert folded.success_rate(policy, lesson=0) == 0.75
    assert world.state.indexes.goals.success_rate(policy, lesson=0) == 0.75
