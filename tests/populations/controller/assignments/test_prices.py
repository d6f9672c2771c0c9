"""Prices of evaluation, by hand."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from arena.types import AssignmentId, LearnerId
from arena.wire.messages import Evaluate
from populations.controller.assignments.placement import is_cheaper, is_left_to_cheaper
from populations.controller.evaluation.share import short_of
from populations.controller.state.leases import Learner, MatchTimes
from populations.controller.state.state import ControllerState
from tests.populations.controller.simulated import DUEL, World, make_world, stranger

SPEEDS = {"player": 100.0}


def learner(*, match_s: float | None, speeds: Mapping[str, float] = SPEEDS) -> Learner:
    """Return a learner with measured speeds."""
    return stranger(make_world(), speeds=speeds, match_s=match_s)


@pytest.mark.parametrize(
    ("speed", "match_s", "expected"),
    [
        (100.0, 1.0, False),  # equal
        (100.0, 0.85, False),  # within the error of measurement
        (100.0, 0.1, True),  # faster at matches
        (20.0, 1.0, True),  # slow at training, as fast at matches
        (20.0, 5.0, False),  # slow at both, so a match costs as much
        (500.0, 0.02, False),  # a match costs a tenth, but a second costs five times as much
        (110.0, 0.5, True),
    ],
)
def test_a_cheaper_learner_loses_less_by_a_match_and_no_more_by_a_second(
    speed: float, match_s: float, expected: bool
) -> None:
    other = learner(match_s=match_s, speeds={"player": speed})
    assert is_cheaper(other, learner(match_s=1.0)) is expected


def test_learners_of_unknown_speeds_are_not_compared() -> None:
    known, cheap = learner(match_s=1.0), learner(match_s=0.1)
    assert is_cheaper(cheap, known)
    assert not is_cheaper(learner(match_s=None), known)
    assert not is_cheaper(cheap, learner(match_s=None))
    assert not is_cheaper(cheap, learner(match_s=1.0, speeds={"other": 100.0}))
    assert not is_cheaper(cheap, learner(match_s=1.0, speeds={}))


def test_only_populations_that_both_have_trained_are_compared() -> None:
    """The other one would look slow by a population that this one has not trained."""
    other = learner(match_s=1.0, speeds={"player": 100.0, "heavy": 1.0})
    assert not is_cheaper(other, learner(match_s=1.0))
    assert is_cheaper(other, learner(match_s=1.0, speeds={"player": 100.0, "heavy": 100.0}))


def short_by(world: World, seconds: float) -> None:
    """Let evaluation be short of some seconds of its share, 0.3 in these runs."""
    run = replace(world.state.tables.run, training_s=100.0, evaluation_s=(30.0 - seconds) / 0.7)
    world.state.tables.run = run
    if not world.state.settings.config.deterministic:
        assert short_of(
            world.state.measured, world.state.indexes.pending_matches, world.state.crew
        ) == pytest.approx(seconds)


def leaves(state: ControllerState, own: Learner) -> bool:
    short_s = short_of(state.measured, state.indexes.pending_matches, state.crew)
    return is_left_to_cheaper(state.settings.config, state.crew.learners, own, short_s)


@pytest.mark.parametrize(
    ("match_s", "short_s", "expected"),
    [
        (0.1, 1.0, True),
        (0.1, 5.9, True),
        (0.1, 6.1, False),  # the cheaper learner cannot do it alone
        (1.0, 1.0, False),  # none is cheaper
    ],
)
def test_evaluation_is_left_to_a_cheaper_learner_for_two_assignments(
    match_s: float, short_s: float, expected: bool
) -> None:
    world = make_world()
    short_by(world, short_s)
    own = learner(match_s=1.0)
    world.state.crew.learners[LearnerId("own")] = own
    assert not leaves(world.state, own)
    world.state.crew.learners[LearnerId("other")] = learner(match_s=match_s)
    assert leaves(world.state, own) is expected


def test_a_deterministic_run_leaves_nothing_to_others() -> None:
    world = make_world({**DUEL, "deterministic": True})
    short_by(world, 1.0)
    world.state.crew.learners[LearnerId("other")] = learner(match_s=0.1)
    assert not leaves(world.state, learner(match_s=1.0))


def test_a_cheaper_learner_that_does_not_come_to_it_is_not_waited_for_for_ever() -> None:
    stop = {"agent_steps_per_policy": 10**6}
    world = make_world({**DUEL, "pbt": {"exploit": "none"}, "stop": stop})
    own, stuck = world.join(), world.join()
    while not world.state.tables.run.evaluation_assignments:
        world.step()
    for one, match_s in ((own, 0.01), (stuck, 0.001)):
        known = world.state.crew.learners[one]
        known.speeds.update(SPEEDS)
        known.match_times = MatchTimes(matches=100.0, seconds=100.0 * match_s)
    began: dict[AssignmentId, float] = {}
    for _ in range(40):
        event = world.work(own)
        if event is not None:
            short_s = short_of(
                world.state.measured, world.state.indexes.pending_matches, world.state.crew
            )
            world.handle(event)
            for message in world.given[own]:
                if isinstance(message, Evaluate):
                    began.setdefault(message.assignment_id, short_s)
        world.fit()
    # Evaluation was first held already, then got new work only when two assignments' time was
    # missing.
    late = [short_s for short_s in began.values() if short_s > 4.0]
    assert late
    assert len(late) >= len(began) - 1
