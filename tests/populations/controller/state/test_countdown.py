"""Time that is named for matches; epochs that evaluate a run and do nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from arena.types import PolicyId
from arena.wire.messages import Train
from populations.controller.evaluation.finals import final_countdown
from populations.controller.state.clocks import Countdown
from populations.controller.state.events import ControllerStarted, StopRequested
from populations.controller.state.state import make_state
from populations.records.rows import Json
from tests.populations.controller.simulated import DUEL, World, made_once, make_world

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
    # The limit stays in front: by it the launch's last lines say how the run goes on.
    reason = before.state.tables.run.reason
    assert reason.startswith("stop.agent_steps_per_policy: ")
    assert run.reason == f"{reason}; evaluated for 40 s more"
    (begun,) = world.events("evaluation_only")
    assert begun.data == {"duration_s": 40.0, "before": reason}
    (ended,) = world.events("run_finished")
    assert ended.data == {"reason": run.reason}
    # A step of the world takes a second; nobody is given more than it can end.
    assert 39.0 <= round(run.elapsed_s - before.state.tables.run.elapsed_s, 6) <= 42.0


def test_a_limit_in_seconds_counts_training_and_no_finals() -> None:
    def limited(seconds: float) -> dict[str, Any]:
        return {**DUEL, "stop": {"agent_steps_per_policy": None, "duration_s": seconds}}

    world = make_world(limited(60.0), joined=2)
    world.run()
    first = world.state.tables.run
    assert first.closing_s > 5.0
    assert 60.0 <= first.elapsed_s - first.closing_s <= 65.0
    # An evaluation alone has no training either.
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
    # The time of a match is of all matches.
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
    # A resume goes on with both.
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
    # It goes on when all learners are lost.
    only.advance(111.0, may_begin=False)
    assert only.left_s == 6.0
