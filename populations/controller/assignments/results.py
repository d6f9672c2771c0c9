"""End of an assignment: its result and all decisions that follow from it, in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from arena.checkpoints.manifest import Manifest
from arena.matches.seating import num_episodes
from arena.types import Digest, LearnerId, Tally, population_of
from arena.wire.messages import Acknowledge, Evaluate, Failed, Finished, Train, Trainee
from populations.controller.assignments import learner_lifecycle
from populations.controller.assignments.failures import fail_row, finish_row
from populations.controller.assignments.jobs import forget_dropped, record_episodes
from populations.controller.assignments.validation import (
    LENGTH,
    SPEED,
    GivenAssignment,
    find_inconsistency,
    published_by,
    trained_steps,
)
from populations.controller.evaluation import games
from populations.controller.evaluation.pairings import validated_generation_of
from populations.controller.evolution import halving, pbt, quarantine
from populations.controller.evolution.snapshots import mark_export, snapshot
from populations.controller.indexes.teams import leaders_of, team_of
from populations.controller.indexes.trainee_metrics import metrics_of_trainee
from populations.controller.monitoring import alerts
from populations.controller.opponents import update_qualities
from populations.controller.state import pauses
from populations.controller.state.events import (
    AssignmentFailed,
    AssignmentFinished,
    RemoveCheckpoints,
)
from populations.controller.state.leases import Crew, HeldAssignment, Learner
from populations.controller.state.state import ControllerState, Indexes
from populations.controller.state.transaction import Transaction
from populations.hooks.findings import Finding
from populations.league.league import League
from populations.records.rows import AssignmentRow, CheckpointRow, PolicyRow, TallyRow

SMOOTHING = 0.5
MAX_REASON = 1000
"""Limit, in characters, of the description of what is wrong with a result."""


def finish(state: ControllerState, tx: Transaction, event: AssignmentFinished) -> None:
    """Record a learner's result, and make the decisions that follow from it."""
    finished = event.finished
    opened = _open_row(state.crew, tx, event.learner, finished)
    if opened is None:
        return
    row, held = opened
    learner = state.crew.learners[event.learner]
    asked = GivenAssignment(
        message=row.message,
        setup=state.settings.setup,
        waited_s=tx.now.monotonic_s - held.sent_s,
        up_s=tx.now.monotonic_s - state.phase.started_s,
    )
    fault = find_inconsistency(asked, finished, manifests=event.manifests)
    if fault is not None:
        reason = f"what the learner sent does not fit its assignment: {fault[:MAX_REASON]}"
        refused = Failed(
            assignment_id=row.assignment_id, attempt=row.attempt, kind="error", reason=reason
        )
        _fail(state, tx, event.learner, row, refused)
        return
    # The learner has finished an assignment, which ends its row of failures.
    finish_row(state, tx, learner, row)
    alerts.record(state.measured, tx, Finding("learner_failing", "", learner.place, ""))
    _commit(state, tx, event, row)
    quarantine.rescue_waiting(state, tx)
    halving.fill_places(state, tx)
    # Removal comes last, because the decisions above have released or named checkpoints.
    mark_unneeded(state.indexes, tx)


def _commit(
    state: ControllerState, tx: Transaction, event: AssignmentFinished, row: AssignmentRow
) -> None:
    finished, learner = event.finished, state.crew.learners[event.learner]
    trained = trained_steps(row.message, finished, event.manifests)
    matches = sum(tally.matches for tally in finished.tallies)
    _take_tallies(state.league, tx, row, finished.tallies)
    if isinstance(row.message, Train):
        sides = [state.league.whole_sides(tally) for tally in finished.tallies]
        update_qualities(state, tx, row.message, sides)
    # The assignment is put after its tallies, because `PendingMatches` takes the last sequence in
    # the tables for that of this assignment.
    tx.put(
        replace(
            row,
            status="finished",
            learner=event.learner,
            agent_steps=trained,
            matches=matches,
            duration_s=finished.duration_s,
            metrics=finished.metrics,
        )
    )
    tx.count(agent_steps=trained, matches=matches, assignments_finished=1)
    forget_dropped(state, tx, event.learner, finished=finished)
    if isinstance(row.message, Train):
        # An assignment that only makes initial weights has no episodes, and its time does not count
        # as training.
        if trained:
            record_episodes(state, event.learner, message=row.message, finished=finished)
            tx.count(training_s=finished.duration_s, training_assignments=1)
        for trainee, published in published_by(row.message, finished):
            manifest = event.manifests[published.checkpoint.key]
            metrics = metrics_of_trainee(finished.metrics, row.message.trainees, of=trainee.policy)
            _advance_policy(state, tx, row, metrics, trainee, published.checkpoint.key, manifest)
            _note_speed(learner, trainee, metrics)
        # A checkpoint was written, so the disk has room again.
        pauses.accept(state.blame, tx)
        # Decide after all trainees have advanced, because a team decides as one.
        _follow_up(state, tx, row.message.trainees)
    elif isinstance(row.message, Evaluate):
        for times in (state.measured.match_times, learner.match_times):
            times.add(matches=matches, duration_s=finished.duration_s)
        games.take(state, tx, row, finished.games)
        for pairing in row.message.pairings:
            # Weights that have played against themselves without a failure are safe to be seated.
            if (policy := validated_generation_of(state.league, pairing)) is not None:
                tx.put(replace(policy, validated_generation=policy.generation))
        _learn_lengths(state.league, tx, finished.tallies)
        # Seconds of an epoch that only evaluates must not shorten the finals of a later epoch.
        is_extra = state.phase.evaluation_only is not None
        tx.count(
            **{"extra_evaluation_s" if is_extra else "evaluation_s": finished.duration_s},
            evaluation_assignments=1,
        )


def _learn_lengths(league: League, tx: Transaction, tallies: Sequence[Tally]) -> None:
    """Take episode lengths from matches, for policies without an ended episode in training."""
    for tally in tallies:
        for entrant in dict.fromkeys(tally.entrants):
            made = league.checkpoints.get(Digest(entrant))
            policy = None if made is None else tx.tables.policies[made.policy]
            if policy is not None and policy.episode_length == 0.0:
                # The mean length is calls / episodes; a match of cooperation has two episodes.
                length = tally.length_sum / num_episodes(tally, seats=league.seats)
                tx.put(replace(policy, episode_length=length))


def _take_tallies(
    league: League, tx: Transaction, row: AssignmentRow, tallies: Sequence[Tally]
) -> None:
    """Record tallies and the rows of results that they are added to."""
    for tally in tallies:
        sequence = league.tables.num_tallies + 1
        tally_row = TallyRow(
            sequence=sequence, assignment_id=row.assignment_id, kind=row.kind, tally=tally
        )
        tx.put(tally_row)
        tx.follow(league.add_tally(tally_row))


def _open_row(
    crew: Crew, tx: Transaction, learner: LearnerId, ended: Finished | Failed
) -> tuple[AssignmentRow, HeldAssignment] | None:
    """Return the open assignment that a learner ends; None for a duplicate or an older attempt."""
    assignment_id, attempt = ended.assignment_id, ended.attempt
    # Every result is acknowledged after the commit, because a learner repeats it until then.
    tx.send(learner, Acknowledge(assignment_id=assignment_id, attempt=attempt))
    known = crew.learners.get(learner)
    if known is None:
        return None
    held = known.release(assignment_id, attempt=attempt, now_s=tx.now.monotonic_s)
    if held is not None:
        del crew.holders[assignment_id]
    row = tx.tables.assignments.get(assignment_id)
    # If the assignment was closed or given out again meanwhile, the learner is free, but its result
    # does not count.
    if row is None or held is None or row.attempt != attempt:
        return None
    return row, held


def _advance_policy(
    state: ControllerState,
    tx: Transaction,
    row: AssignmentRow,
    metrics: Mapping[str, float],
    trainee: Trainee,
    key: str,
    manifest: Manifest,
) -> None:
    """Record a trainee's new checkpoint, and update its policy."""
    # The origin is the checkpoint that it was trained from; after an exploit this is the donor's.
    origin = None if trainee.checkpoint is None else trainee.checkpoint.key
    tx.put(
        CheckpointRow(
            key=key,
            digest=manifest.digest,
            weights_digest=manifest.weights_digest,
            policy=trainee.policy,
            generation=trainee.generation,
            agent_steps=manifest.agent_steps,
            learner_updates=manifest.learner_updates,
            parent=None if origin is None else state.tables.checkpoints[origin].weights_digest,
            assignment_id=row.assignment_id,
        )
    )
    policy = state.tables.policies[trainee.policy]
    steps_before = policy.agent_steps
    is_trained = manifest.agent_steps > trainee.agent_steps
    # Without the metric nothing is known about episodes, so the budget is not doubled.
    if metrics.get("episode/count", 1.0) == 0.0:
        state.blame.doublings[policy.policy] += is_trained
    elif isinstance(row.message, Train) and row.message.carried:
        # The doublings end only if this assignment went on with episodes. If they began anew, as
        # when learners cannot hold all of them, the next ones need as large a budget to end.
        state.blame.doublings.pop(policy.policy, None)
    # Schedules are evaluated only here, when agent steps change, so that a hyperparameter is
    # constant within an assignment.
    hyperparameters = state.settings.scheduled[policy.population].values(
        policy.hyperparameters, factors=policy.factors, agent_steps=manifest.agent_steps
    )
    policy = replace(
        policy,
        hyperparameters=hyperparameters,
        agent_steps=manifest.agent_steps,
        learner_updates=manifest.learner_updates,
        checkpoint=key,
        speed=_smooth(policy.speed, metrics.get(SPEED, 0.0)),
        episode_length=_smooth(policy.episode_length, metrics.get(LENGTH, 0.0)),
    )
    tx.put(policy)
    mark_export(state.settings.config, tx, policy, before=steps_before)


def _note_speed(learner: Learner, trainee: Trainee, metrics: Mapping[str, float]) -> None:
    """Record how fast a learner trains a population."""
    population, speed = population_of(trainee.policy), metrics.get(SPEED, 0.0)
    if speed > 0.0:
        learner.speeds[population] = _smooth(learner.speeds.get(population, 0.0), speed)


def _follow_up(state: ControllerState, tx: Transaction, trainees: Sequence[Trainee]) -> None:
    """Make the decisions that new checkpoints make due (ghosts, PBT), team by team."""
    learned = {trainee.policy for trainee in trainees}
    for leader in leaders_of(state.league, trainees):
        team = [row for row in team_of(state.league, leader) if row.policy in learned]
        if all(row.state == "active" for row in team):
            snapshot(state, tx, team)
            pbt.evolve(state, tx, leader)


def _smooth(old: float, new: float) -> float:
    # x <- x + a (new - x) with a = SMOOTHING; 0 means unknown, for the old and the new value.
    return new if old == 0.0 else old + SMOOTHING * (new - old) if new > 0.0 else old


def mark_unneeded(indexes: Indexes, tx: Transaction) -> None:
    """Mark checkpoints that nothing needs for removal, which follows after the commit."""
    tables, league = tx.tables, indexes.league

    def standing(policy: PolicyRow) -> str | None:
        digest = league.standing_weights(policy)
        return None if digest is None else league.checkpoints[digest].key

    contenders = indexes.fits.contenders
    indexes.rated_pins.refresh(indexes.retention, league=league, contenders=contenders)
    keys = indexes.retention.unneeded(tables, standing=standing)
    for key in keys:
        # The mark is committed first, so that a resume removes directories that a crash has left.
        tx.put(replace(tables.checkpoints[key], state="doomed"))
    if keys:
        tx.commands.append(RemoveCheckpoints(keys=tuple(keys)))


def fail(state: ControllerState, tx: Transaction, event: AssignmentFailed) -> None:
    """Record that an assignment failed, and what follows from it."""
    failed = event.failed
    opened = _open_row(state.crew, tx, event.learner, failed)
    if opened is not None:
        _fail(state, tx, event.learner, opened[0], failed, damage=event.damage)


def _fail(
    state: ControllerState,
    tx: Transaction,
    learner_id: LearnerId,
    row: AssignmentRow,
    failed: Failed,
    *,
    damage: str | None = None,
) -> None:
    if fail_row(state, tx, state.crew.learners[learner_id], row, failed, damage=damage):
        learner_lifecycle.renew(state, tx, learner_id)
    else:
        learner_lifecycle.dismiss_if_at_fault(state, tx, learner_id)
