"""A faulty learner: what it sends counts for nothing and brings nothing down."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from msgspec import structs

from arena.checkpoints.manifest import checkpoint_key
from arena.types import CheckpointRef, Entrant, PairScore, PolicyId, SeatOpenings, Tally
from arena.wire.messages import Evaluate, InFlight
from populations.controller.assignments.validation import LENGTH, SPEED
from populations.controller.state.events import AssignmentFinished
from tests.populations.controller.simulated import World, make_world


def training_result(world: World) -> AssignmentFinished:
    """A result of a policy's second training assignment: its counters could fall."""
    learner = world.join()
    for _ in range(50):
        event = world.work(learner)
        assert event is not None
        (updates,) = [m.learner_updates for m in event.manifests.values()] or [0]
        if event.finished.tallies and updates > 60:
            return event
        world.handle(event)
    raise AssertionError("nothing was trained")


def with_tally(event: AssignmentFinished, **changes: object) -> AssignmentFinished:
    """The event with its first tally changed."""
    first, *others = event.finished.tallies
    tally: Tally = structs.replace(first, **changes)
    return structs.replace(
        event, finished=structs.replace(event.finished, tallies=(tally, *others))
    )


def with_scores(
    event: AssignmentFinished, *, score_sum: float, square_sum: float
) -> AssignmentFinished:
    """The event with other sums of scores in its first tally."""
    pairs = event.finished.tallies[0].pairs
    changed = tuple(structs.replace(p, score_sum=score_sum, square_sum=square_sum) for p in pairs)
    return with_tally(event, pairs=changed)


def with_openings(
    event: AssignmentFinished,
    *,
    seats: int = 2,
    action: int = 0,
    matches: int = 1,
    points: float = 0.5,
) -> AssignmentFinished:
    """The event with one opening of each seat in its first tally."""
    seat = SeatOpenings(actions=(action,), matches=(matches,), points=(points,))
    return with_tally(event, openings=(seat,) * seats)


def with_key(event: AssignmentFinished, key: str) -> AssignmentFinished:
    """The event with its checkpoint somewhere else."""
    (published,) = event.finished.checkpoints
    (manifest,) = event.manifests.values()
    ref = CheckpointRef(digest=published.checkpoint.digest, key=key)
    moved = structs.replace(
        event.finished, checkpoints=(structs.replace(published, checkpoint=ref),)
    )
    return structs.replace(event, finished=moved, manifests={key: manifest})


def with_manifest(event: AssignmentFinished, **changes: object) -> AssignmentFinished:
    """The event with another manifest."""
    ((key, manifest),) = event.manifests.items()
    return structs.replace(event, manifests={key: structs.replace(manifest, **changes)})


def with_finished(event: AssignmentFinished, **changes: object) -> AssignmentFinished:
    """The event with its message changed."""
    return structs.replace(event, finished=structs.replace(event.finished, **changes))


def with_tallies(event: AssignmentFinished, tallies: tuple[Tally, ...]) -> AssignmentFinished:
    """The event with other tallies."""
    return with_finished(event, tallies=tallies)


def with_metric(event: AssignmentFinished, name: str, value: float) -> AssignmentFinished:
    """The event with another metric."""
    return with_finished(event, metrics={**event.finished.metrics, name: value})


def with_steps(event: AssignmentFinished, steps: int) -> AssignmentFinished:
    """The event with a checkpoint at another count of agent steps, where that belongs."""
    (manifest,) = event.manifests.values()
    manifest = structs.replace(manifest, agent_steps=steps)
    key = checkpoint_key(manifest.policy, agent_steps=steps, digest=manifest.digest)
    moved = with_key(event, key)
    return structs.replace(moved, manifests={key: manifest})


def for_another_policy(event: AssignmentFinished) -> AssignmentFinished:
    """The event as if it were about another policy."""
    (published,) = event.finished.checkpoints
    other = structs.replace(published, policy=PolicyId("player/p099"))
    return structs.replace(event, finished=structs.replace(event.finished, checkpoints=(other,)))


FAULTS: dict[str, Callable[[AssignmentFinished], AssignmentFinished]] = {
    "checkpoints of": for_another_policy,
    "says it is": lambda event: with_manifest(event, generation=7),
    "other weights than": lambda event: with_manifest(event, parent="a" * 64),
    "from other weights": lambda event: with_manifest(event, donor="player/p001"),
    "its environment_digest is": lambda event: with_manifest(event, environment_digest="a" * 64),
    "its population_agents is": lambda event: with_manifest(event, population_agents=("a",)),
    "fell": lambda event: with_manifest(event, agent_steps=0, learner_updates=0),
    "not where it belongs": lambda event: with_key(event, "imports/player"),
    "did not play": lambda event: with_tally(event, entrants=(Entrant("a" * 64),) * 2),
    "does not add up": lambda event: with_tally(event, matches=1),
    "add up": lambda event: with_tally(
        event, pairs=(PairScore(first=0, second=9, wins=4, draws=0, losses=0),)
    ),
    "not add": lambda event: with_tally(event, return_sum=(1.0,)),
    "does not add": lambda event: with_scores(event, score_sum=1e9, square_sum=1.0),
    "of (": lambda event: with_tally(event, distinct=0),
    "openings of 1 seats": lambda event: with_openings(event, seats=1),
    "points in 1 matches": lambda event: with_openings(event, points=2.0),
    "nan points": lambda event: with_openings(event, points=math.nan),
    "-1 points": lambda event: with_openings(event, points=-1.0),
    "counts (1000000,)": lambda event: with_openings(event, matches=10**6),
    "counts (0,)": lambda event: with_openings(event, matches=0),
    "no such index": lambda event: with_openings(event, action=2**40),
    "33 actions": lambda event: with_tally(
        event,
        openings=(SeatOpenings(actions=(*range(33),), matches=(1,) * 33, points=(0.0,) * 33),) * 2,
    ),
    "count and points": lambda event: with_tally(
        event, openings=(SeatOpenings(actions=(1, 1), matches=(1, 1), points=(0.0, 0.0)),) * 2
    ),
    "other pairs of seats": lambda event: with_tally(
        event, pairs=event.finished.tallies[0].pairs * 2
    ),
    "t add up": lambda event: with_tally(event, return_sum=(1.7e308, 1.7e308)),
    "add u": lambda event: with_tally(event, return_sum_of_squares=(-1.0, 1.0)),
    "2 tallies of": lambda event: with_tallies(event, event.finished.tallies[:1] * 2),
    "have 1 steps": lambda event: with_tally(event, length_sum=1),
    "steps, more than can": lambda event: with_tally(event, length_sum=2**62),
    "matches were played for": lambda event: with_tally(
        event,
        matches=10**8,
        length_sum=10**9,
        pairs=(PairScore(first=0, second=1, wins=10**8, draws=0, losses=0),),
    ),
    "was asked for": lambda event: with_steps(event, 5900),
    "asked for 500, so 1012 at most": lambda event: with_steps(event, 2**62),
    "optimizer steps": lambda event: with_manifest(event, learner_updates=2**62),
    "it took": lambda event: with_finished(event, duration_s=1.7e308),
    "episode/length_mean": lambda event: with_metric(event, LENGTH, 1e18),
    "agent_steps_per_s is -1": lambda event: with_metric(event, SPEED, -1.0),
    "agent_steps_per_s is 1e+12": lambda event: with_metric(event, SPEED, 1e12),
    "'x' is out of bounds": lambda event: with_metric(event, "x", 1e300),
    "in 8 environments": lambda event: with_finished(
        event, in_flight=(InFlight(entrants=event.finished.tallies[0].entrants, num_envs=9),)
    ),
}


@pytest.mark.parametrize("said", FAULTS)
def test_a_result_that_does_not_fit_is_refused_and_given_out_again(said: str) -> None:
    world = make_world()
    event = training_result(world)
    before = world.state.tables.run
    world.handle(FAULTS[said](event))
    failed = world.events("assignment_failed")
    assert said in str(failed[-1].data["reason"])
    after = world.state.tables.run
    assert (after.matches, after.agent_steps) == (before.matches, before.agent_steps)
    assert event.finished.assignment_id in world.state.tables.assignments
    attempts = [message.attempt for message in world.given[event.learner]]
    assert 2 in attempts


def test_the_same_result_unchanged_is_believed() -> None:
    world = make_world()
    event = training_result(world)
    world.handle(event)
    assert not world.events("assignment_failed")
    assert event.finished.assignment_id not in world.state.tables.assignments


@pytest.mark.parametrize("change", ["none", "more", "others"])
def test_an_evaluation_has_exactly_the_matches_that_it_was_asked_for(change: str) -> None:
    world = make_world()
    learner = world.join()
    while not isinstance(world.given[learner][0], Evaluate):
        world.step()
    event = world.work(learner)
    assert event is not None
    first, *others = event.finished.tallies
    (score,) = first.pairs
    more = structs.replace(
        first, matches=first.matches + 1, pairs=(structs.replace(score, draws=score.draws + 1),)
    )
    tallies = {"none": (), "more": (more, *others), "others": tuple(others)}[change]
    world.handle(with_tallies(event, tallies))
    reason = str(world.events("assignment_failed")[-1].data["reason"])
    assert f"were played instead of {first.matches}" in reason
    assert world.state.league.tables.last_evaluation_sequence == 0


def test_seconds_are_bounded_by_the_controllers_clock_and_not_by_its_gaps() -> None:
    world = make_world()
    event = training_result(world)
    known = world.state.crew.learners[event.learner]
    world.now_s += 500.0  # the controller was stopped, but the learner was not
    known.last_heard_s = world.now_s
    world.handle(with_finished(event, duration_s=480.0))
    assert not world.events("assignment_failed")
