"""Runs that end by results against a bot and by success rates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from arena.types import Digest, Entrant, PolicyId
from arena.wire.messages import Train
from populations.controller.evaluation.finals import final_countdown
from populations.controller.phases import limit_reached
from populations.controller.state.epoch import Countdown
from populations.controller.state.events import ControllerStarted, StopRequested
from populations.controller.state.goals import (
    StopGoals,
    goal_reached,
    has_reached_evaluation,
    unreported,
)
from populations.controller.state.state import ControllerState, make_state
from populations.records.rows import AssignmentRow, Json, PolicyRow
from tests.populations.controller.simulated import DUEL, World, made_once, make_world
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
    # The oldest result is left out, because the two newest have 100 episodes.
    assert folded.success_rate(policy, lesson=0) == 0.75
    assert world.state.indexes.goals.success_rate(policy, lesson=0) == 0.75


SHORT = {**DUEL, "stop": {"agent_steps_per_policy": 2000}}


def going_on(world: World, evaluation_only: Countdown | None) -> World:
    """The same run with a new controller and two new learners."""
    old = world.state
    world.state = make_state(old.settings.config, old.settings.setup, old.tables)
    world.state.phase.evaluation_only = evaluation_only
    world.over = False
    world.given.clear()
    world.stops.clear()
    world.questions.clear()
    world.committed.clear()
    world.handle(ControllerStarted())
    world.join()
    world.join()
    return world


@made_once
def finished() -> World:
    world = make_world(SHORT, joined=2)
    world.run()
    assert world.state.tables.run.state == "finished"
    return world


@pytest.fixture(scope="module")
def evaluated() -> tuple[World, World]:
    """A finished run as it was, and after 40 more seconds of evaluation."""
    world = finished()
    before = make_world(SHORT)
    before.state.tables = replace(
        world.state.tables,
        policies=world.state.tables.policies.copy(),
        ghosts=world.state.tables.ghosts.copy(),
        generations=world.state.tables.generations.copy(),
        checkpoints=world.state.tables.checkpoints.copy(),
        ratings=world.state.tables.ratings.copy(),
    )
    going_on(world, Countdown(duration_s=40.0)).run()
    return before, world


def test_only_evaluation_matches_are_played_and_ratings_fitted_anew(
    evaluated: tuple[World, World],
) -> None:
    before, after = (world.state.tables for world in evaluated)
    assert after.run.matches > before.run.matches
    assert after.run.agent_steps == before.run.agent_steps
    assert after.run.training_assignments == before.run.training_assignments
    assert (after.ghosts.keys(), after.generations) == (before.ghosts.keys(), before.generations)
    assert after.checkpoints.keys() == before.checkpoints.keys()
    rows = after.ratings["player"], before.ratings["player"]
    assert rows[0].num_tallies > rows[1].num_tallies
    assert rows[0].num_tallies == after.last_evaluation_sequence
    assert not evaluated[1].events("train_assigned", "start_assigned", "training_stopped")


@pytest.mark.slow
def test_it_ends_as_finished_when_the_time_since_the_first_learner_is_over(
    evaluated: tuple[World, World],
) -> None:
    before, world = evaluated
    run, only = world.state.tables.run, world.state.phase.evaluation_only
    assert only is not None
    assert only.left_s <= 0.0
    assert run.state == "finished"
    # The limit stays the first reason, because the launch's last lines derive the next command from
    # it.
    reason = before.state.tables.run.reason
    assert reason.startswith("stop.agent_steps_per_policy: ")
    assert run.reason == f"{reason}; evaluated for 40 s more"
    (begun,) = world.events("evaluation_only")
    assert begun.data == {"duration_s": 40.0, "before": reason}
    (ended,) = world.events("run_finished")
    assert ended.data == {"reason": run.reason}
    # A step of the world takes a second, and no learner gets work that it cannot finish.
    assert 39.0 <= round(run.elapsed_s - before.state.tables.run.elapsed_s, 6) <= 42.0


def test_a_limit_in_seconds_counts_training_and_no_finals() -> None:
    def limited(seconds: float) -> dict[str, Any]:
        return {**DUEL, "stop": {"agent_steps_per_policy": None, "duration_s": seconds}}

    world = make_world(limited(60.0), joined=2)
    world.run()
    first = world.state.tables.run
    assert first.closing_s > 5.0
    assert 60.0 <= first.elapsed_s - first.closing_s <= 65.0
    # A separate evaluation has no training time, either.
    alone = going_on(world, Countdown(duration_s=40.0))
    alone.run()
    second = alone.state.tables.run
    assert second.closing_s - first.closing_s == second.elapsed_s - first.elapsed_s > 30.0
    alone.state.settings.config = make_world(limited(90.0)).state.settings.config
    more = going_on(alone, None)
    more.run()
    third = more.state.tables.run
    assert third.reason.startswith("stop.duration_s: training has taken 9")
    assert 90.0 <= third.elapsed_s - third.closing_s <= 95.0
    assert third.agent_steps > 1.3 * first.agent_steps


def test_it_takes_no_time_from_shares_and_finals(evaluated: tuple[World, World]) -> None:
    before, world = evaluated
    runs = [one.state.tables.run for one in evaluated]
    assert runs[1].evaluation_s == runs[0].evaluation_s
    assert runs[1].extra_evaluation_s > runs[0].extra_evaluation_s == 0.0
    state = make_state(world.state.settings.config, world.state.settings.setup, world.state.tables)
    then = make_state(world.state.settings.config, world.state.settings.setup, before.state.tables)
    assert final_countdown(state.settings.config, state.tables, state.crew) == final_countdown(
        then.settings.config, then.tables, then.crew
    )
    # The time per match is measured over all matches.
    assert state.measured.match_times.seconds == runs[1].evaluation_s + runs[1].extra_evaluation_s


def test_a_second_time_takes_the_place_of_the_first_in_the_reason() -> None:
    world = finished()
    reason = world.state.tables.run.reason
    for duration_s in (5.0, 7.0):
        going_on(world, Countdown(duration_s=duration_s)).run()
    assert world.state.tables.run.reason == f"{reason}; evaluated for 7 s more"


def test_open_training_and_decisions_of_pbt_wait_for_an_epoch_that_trains() -> None:
    world = make_world(SHORT, joined=2)
    while world.state.tables.run.training_assignments < 4:
        world.step()
    tables = world.state.tables
    training = {key for key, row in tables.assignments.items() if isinstance(row.message, Train)}
    assert training, "learners have something"
    waiting = PolicyId("player/p001")
    values: dict[str, Json] = dict(tables.policies[waiting].hyperparameters)
    pending: dict[str, Json] = {"kind": "explore", "hyperparameters": values, "seed": [1, 0, 1]}
    tables.policies[waiting] = structs.replace(tables.policies[waiting], pending=pending)
    steps = tables.run.agent_steps
    going_on(world, Countdown(duration_s=20.0)).run()
    after = world.state.tables
    assert (after.run.state, after.run.reason) == ("finished", "evaluated for 20 s")
    assert after.assignments.keys() == training
    assert after.policies[waiting].pending == pending
    assert (after.run.agent_steps, world.questions) == (steps, [])
    # A resume continues both.
    after.policies[waiting] = structs.replace(after.policies[waiting], pending={})
    going_on(world, None).run()
    assert world.state.tables.run.agent_steps > steps
    assert world.state.tables.run.reason.startswith("stop.agent_steps_per_policy: ")
    assert not world.state.tables.assignments


def test_a_stop_ends_it_at_once() -> None:
    world = going_on(finished(), Countdown(duration_s=1e6))
    world.steps(5)
    world.handle(StopRequested(reason="interrupted by SIGINT"))
    world.run()
    run = world.state.tables.run
    assert (run.state, run.reason) == ("stopped", "interrupted by SIGINT")


def test_time_begins_with_the_first_learner() -> None:
    only = Countdown(duration_s=10.0)
    only.advance(100.0, may_begin=False)
    assert (only.began_s, only.left_s) == (None, 10.0)
    only.advance(107.0, may_begin=True)
    assert (only.began_s, only.left_s) == (107.0, 10.0)
    # The countdown continues when all learners are lost.
    only.advance(111.0, may_begin=False)
    assert only.left_s == 6.0
