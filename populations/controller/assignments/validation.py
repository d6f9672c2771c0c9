"""Validation of results: everything that a learner reports must fit its assignment.

A learner is trusted to play honestly, but not to be free of faults: nothing that it sends may crash
the controller, or count for a player that did not play. Each number is bounded by the assignment,
or by the time that has passed since it was sent.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from msgspec import Struct

from arena.checkpoints.manifest import Manifest, check_manifest, checkpoint_key
from arena.config import LearnerSetup
from arena.errors import CheckpointCorrupt
from arena.matches.comparisons import Comparison, comparisons
from arena.matches.openings import openings_problem
from arena.matches.pair_scores import adds_up
from arena.matches.seating import MAX_RETURN, num_episodes, problem_of
from arena.rollout.calls import rollout_calls
from arena.transfer.terms import Grant, grants_of
from arena.types import (
    MAX_GAMES_BYTES,
    AssignmentId,
    Entrant,
    LearnerId,
    Seating,
    Tally,
    population_of,
)
from arena.wire.keys import holder_of
from arena.wire.messages import Evaluate, Finished, Published, Train, Trainee
from populations.controller.indexes.trainee_metrics import metrics_of_trainee
from populations.controller.state.leases import Learner
from populations.records.tables import Tables

SLACK_S = 60.0
"""Seconds by which a learner's stopwatch may be ahead of the controller's clock."""

MAX_PER_S = 1e9
"""Bound on calls of ``step``, or on decisions, per second of a learner, above any real speed."""

MAX_MATCHES_PER_DECISION = 1000
"""Bound on matches per decision of trainees. Learners fail an assignment in which trainees decide
more rarely (`arena.learners.work.faults`)."""

MAX_UPDATES = 2**40
"""Bound on optimizer steps in an assignment."""

MAX_ROLLOUT_LENGTH = 65536
"""Bound on ``rollout_length`` for users' own algorithms, which may set it themselves."""

SPEED, LENGTH = "throughput/agent_steps_per_s", "episode/length_mean"


class GivenAssignment(Struct, frozen=True, kw_only=True, dict=True):
    """Assignment as it was sent to a learner, and the time that the learner had for it.

    Attributes:
        message: The assignment.
        setup: Set-up of the learners.
        waited_s: Seconds since the assignment was sent.
        up_s: Seconds since this controller started; episodes in flight are no older.
    """

    message: Train | Evaluate
    setup: LearnerSetup
    waited_s: float
    up_s: float

    @cached_property
    def entrants(self) -> Mapping[tuple[Entrant, ...], Seating]:
        """Return the entrants that tallies may name, with their seatings (`entrants_of`)."""
        return entrants_of(self.message)

    @property
    def max_agent_steps(self) -> int:
        """Return the bound on agent steps of all trainees: the budget and one rollout."""
        message, setup = self.message, self.setup
        if not isinstance(message, Train) or message.agent_steps == 0:
            return 0
        # The learner does not cut rollouts short, so it may exceed the budget by one rollout of all
        # environments and agents.
        num_agents = len(setup.spec.agents)
        lengths = [
            int(trainee.hyperparameters.get("rollout_length", MAX_ROLLOUT_LENGTH))
            if setup.populations[population_of(trainee.policy)].algorithm == "ppo"
            else MAX_ROLLOUT_LENGTH
            for trainee in message.trainees
        ]
        rollout = rollout_calls(max(lengths), agents_in_turn=num_agents) * setup.num_envs
        return message.agent_steps + rollout * num_agents

    @property
    def max_calls(self) -> float:
        """Return the bound on calls of ``step``, including those of earlier parts of episodes."""
        return MAX_PER_S * (max(self.up_s, self.waited_s) + SLACK_S)


def find_inconsistency(
    asked: GivenAssignment, finished: Finished, *, manifests: Mapping[str, Manifest]
) -> str | None:
    """Return why a result does not fit its assignment, in words; None if it does.

    Args:
        asked: The assignment.
        finished: Message of the learner.
        manifests: Verified manifests of the checkpoints that it names, by key.
    """
    # The checks stop at the first problem, so each may rely on those before it.
    return next(_problems(asked, finished, manifests), None)


def _problems(
    asked: GivenAssignment, finished: Finished, manifests: Mapping[str, Manifest]
) -> Iterator[str]:
    yield from _problems_of_checkpoints(asked, finished, manifests)
    yield from _problems_of_tallies(asked, finished)
    yield from _problems_of_figures(asked, finished)
    yield from _problems_of_episodes_in_flight(asked, finished)
    yield from _problems_of_games(asked, finished)


def _problems_of_checkpoints(
    asked: GivenAssignment, finished: Finished, manifests: Mapping[str, Manifest]
) -> Iterator[str]:
    message = asked.message
    trainees = message.trainees if isinstance(message, Train) else ()
    expected = sorted(trainee.policy for trainee in trainees)
    named = sorted(published.policy for published in finished.checkpoints)
    if named != expected:
        yield f"it has checkpoints of {named}, not of {expected}"
        return
    for trainee, published in published_by(message, finished):
        fault = _checkpoint_problem(
            trainee, published, manifests[published.checkpoint.key], setup=asked.setup
        )
        if fault is not None:
            yield fault
    steps = trained_steps(message, finished, manifests)
    if steps > asked.max_agent_steps:
        budget = message.agent_steps if isinstance(message, Train) else 0
        yield (
            f"it trained {steps} agent steps, but was asked for {budget}, so "
            f"{asked.max_agent_steps} at most"
        )


def trained_steps(
    message: Train | Evaluate, finished: Finished, manifests: Mapping[str, Manifest]
) -> int:
    """Return the agent steps that trainees did, by the manifests of their checkpoints."""
    return sum(
        manifests[published.checkpoint.key].agent_steps - trainee.agent_steps
        for trainee, published in published_by(message, finished)
    )


def _problems_of_tallies(asked: GivenAssignment, finished: Finished) -> Iterator[str]:
    message, setup = asked.message, asked.setup
    seats = setup.training_seats if isinstance(message, Train) else setup.seats
    entrants = asked.entrants
    counts = Counter(tally.entrants for tally in finished.tallies)
    is_cooperation = asked.setup.is_cooperation
    # In cooperation only evaluation compares players, so tallies of training may lack pairs.
    may_be_alone = is_cooperation and isinstance(message, Train)
    for tally in finished.tallies:
        if tally.entrants not in entrants:
            yield f"a tally names {tally.entrants}, who did not play"
        elif counts[tally.entrants] > 1:
            # A learner must add up the matches of equal seatings into one tally.
            yield f"it has {counts[tally.entrants]} tallies of {tally.entrants}"
        compared: tuple[Comparison, ...] = ()
        if len(tally.entrants) == len(seats) and not (may_be_alone and tally.pairs == ()):
            compared = comparisons(seats, entrants=tally.entrants)
        if [one.names for one in compared] != [(pair.first, pair.second) for pair in tally.pairs]:
            yield f"the tally of {tally.entrants} does not add up: it is about other pairs of seats"
        elif not _adds_up(tally, num_seats=len(seats), compared=compared):
            yield f"the tally of {tally.entrants} does not add up"
        elif (problem := openings_problem(tally)) is not None:
            yield f"the tally of {tally.entrants} has {problem}"
        elif tally.length_sum < num_episodes(tally, seats=seats):
            # An episode has at least one call of ``step``.
            yield f"the matches of {tally.entrants} have {tally.length_sum} steps"
    if isinstance(message, Evaluate):
        yield from _problems_of_matches(message, finished)
    else:
        most = MAX_MATCHES_PER_DECISION * (asked.max_agent_steps + asked.setup.num_envs)
        played = sum(tally.matches for tally in finished.tallies)
        if played > (most if message.agent_steps else 0):
            yield f"{played} matches were played for {message.agent_steps} agent steps"
    calls = sum(tally.length_sum for tally in finished.tallies)
    if calls > asked.max_calls:
        yield f"its matches have {calls} steps, more than can have been played since"


def _problems_of_matches(message: Evaluate, finished: Finished) -> Iterator[str]:
    """Yield the seatings of an evaluation whose number of matches is not the requested one."""
    asked_for: Counter[tuple[Entrant, ...]] = Counter()
    for pairing in message.pairings:
        # Two pairings may seat the same players, and their matches are in one tally.
        asked_for[pairing.seating.entrants({})] += pairing.num_matches
    played = {tally.entrants: tally.matches for tally in finished.tallies}
    for names, number in asked_for.items():
        if played.get(names, 0) != number:
            yield f"{played.get(names, 0)} matches of {names} were played instead of {number}"


def _problems_of_figures(asked: GivenAssignment, finished: Finished) -> Iterator[str]:
    if finished.duration_s > asked.waited_s + SLACK_S:
        yield f"it took {finished.duration_s:g} s, but it was sent {asked.waited_s:.0f} s ago"
    for name, value in finished.metrics.items():
        # The bound also rejects integers that are larger than any float.
        if not math.isfinite(value) or abs(value) > MAX_RETURN:
            yield f"the metric {name!r} is out of bounds"
            return
    trainees = asked.message.trainees if isinstance(asked.message, Train) else ()
    for trainee in trainees:
        own = metrics_of_trainee(finished.metrics, trainees, of=trainee.policy)
        for name, most in ((SPEED, MAX_PER_S), (LENGTH, asked.max_calls)):
            if not 0.0 <= own.get(name, 0.0) <= most:
                yield f"{name} is {own[name]:g}, but can be {most:g} at most"


def _problems_of_episodes_in_flight(asked: GivenAssignment, finished: Finished) -> Iterator[str]:
    entrants = asked.entrants
    for held in finished.in_flight:
        if held.entrants not in entrants or held.num_envs < 1:
            yield f"{held.num_envs} episodes in flight are of {held.entrants}, who do not play"
    if len({held.entrants for held in finished.in_flight}) < len(finished.in_flight):
        yield "it names the same episodes in flight twice"
    number = sum(held.num_envs for held in finished.in_flight)
    if number > asked.setup.num_envs:
        yield f"{number} episodes are in flight in {asked.setup.num_envs} environments"


def _problems_of_games(asked: GivenAssignment, finished: Finished) -> Iterator[str]:
    message = asked.message
    most = message.games if isinstance(message, Evaluate) else 0
    if len(finished.games) > most:
        yield f"it has {len(finished.games)} games, and was asked for {most} at most"
    size = sum(game.size_bytes for game in finished.games)
    if size > MAX_GAMES_BYTES:
        yield f"its games have {size} bytes, more than {MAX_GAMES_BYTES}"
    for game in finished.games:
        if not isinstance(message, Evaluate) or game.pairing >= len(message.pairings):
            yield f"a game is of pairing {game.pairing}, which was not asked for"
        elif (problem := problem_of(game, seats=asked.setup.seats)) is not None:
            yield f"a game {problem}"


def published_by(message: Train | Evaluate, finished: Finished) -> list[tuple[Trainee, Published]]:
    """Return each trainee with the checkpoint that it has published."""
    if not isinstance(message, Train):
        return []
    by_policy = {published.policy: published for published in finished.checkpoints}
    return [(trainee, by_policy[trainee.policy]) for trainee in message.trainees]


def _checkpoint_problem(
    trainee: Trainee, published: Published, manifest: Manifest, *, setup: LearnerSetup
) -> str | None:
    key = published.checkpoint.key
    # The manifest was read from disk and verified, unlike what the learner's message claims.
    facts = (manifest.policy, manifest.generation)
    if facts != (trainee.policy, trainee.generation):
        return f"the checkpoint {key} says it is {facts}"
    source = None if trainee.checkpoint is None else trainee.checkpoint.digest
    if (manifest.parent, manifest.donor) != (source, trainee.donor):
        return f"the checkpoint {key} says it was trained from other weights than {source}"
    try:
        check_manifest(
            manifest,
            environment_digest=setup.spec.digest,
            setup=setup.populations[population_of(trainee.policy)],
        )
    except CheckpointCorrupt as error:
        return str(error)
    steps, updates = manifest.agent_steps, manifest.learner_updates
    if steps < trainee.agent_steps or updates < trainee.learner_updates:
        return f"the counters of {key} fell"
    if updates - trainee.learner_updates > MAX_UPDATES:
        return f"{key} has {updates} optimizer steps"
    # The key must follow from the manifest, so that no checkpoint replaces another one.
    if key != checkpoint_key(manifest.policy, agent_steps=steps, digest=manifest.digest):
        return f"the checkpoint {key} is not where it belongs"
    return None


def entrants_of(message: Train | Evaluate) -> dict[tuple[Entrant, ...], Seating]:
    """Return the entrants, seat by seat, that tallies of an assignment may name, with seatings."""
    if isinstance(message, Evaluate):
        seatings = [pairing.seating for pairing in message.pairings]
        trainees: dict[str, Entrant] = {}
    else:
        seatings = [*message.opponents, *message.carried]
        trainees = {trainee.policy: trainee.entrant for trainee in message.trainees}
    return {seating.entrants(trainees): seating for seating in seatings}


def _adds_up(tally: Tally, *, num_seats: int, compared: Sequence[Comparison]) -> bool:
    """Return whether a tally has a return for each seat and all results of each comparison."""
    returns, squares, matches = tally.return_sum, tally.return_sum_of_squares, tally.matches
    per_seat = (len(tally.entrants), len(returns), len(squares))
    return (
        matches > 0
        and (tally.distinct is None or 1 <= tally.distinct <= matches)
        and per_seat == (num_seats, num_seats, num_seats)
        and all(
            adds_up(pair, matches=matches * one.number)
            for pair, one in zip(tally.pairs, compared, strict=True)
        )
        # |mean| <= m and mean of squares <= m^2, for m = MAX_RETURN
        and all(abs(value) <= MAX_RETURN * matches for value in returns)
        and all(0.0 <= value <= MAX_RETURN**2 * matches for value in squares)
    )


Leases = tuple[tuple[LearnerId, AssignmentId, int], ...]


def open_leases(learners: Mapping[LearnerId, Learner]) -> Leases:
    """Return learner, assignment and attempt of every lease of the learners."""
    return tuple((name, *held.lease) for name, learner in learners.items() for held in learner.held)


def open_grants(
    setup: LearnerSetup, tables: Tables, learners: Mapping[LearnerId, Learner]
) -> dict[str, tuple[Grant, ...]]:
    """Return the checkpoints that each learner may publish, by the name of the learner's key."""
    grants: dict[str, tuple[Grant, ...]] = {}
    for name, assignment_id, _ in open_leases(learners):
        row = tables.assignments.get(assignment_id)
        if row is not None and isinstance(row.message, Train):
            asked = GivenAssignment(message=row.message, setup=setup, waited_s=0.0, up_s=0.0)
            own = grants_of(row.message, max_agent_steps=asked.max_agent_steps)
            grants[holder_of(name)] = grants.get(holder_of(name), ()) + own
    return grants
