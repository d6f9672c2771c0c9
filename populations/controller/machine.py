"""The controller as a pure state machine: an event comes in, a transaction comes out.

It uses no socket, clock, file or global random numbers. The server commits the transaction's rows
and only then carries out its commands, so whatever was acknowledged or sent is in the journal.

Tests: `tests/populations/controller/test_properties.py` and
`tests/faults/test_controller_machine.py`.
"""

from __future__ import annotations

from msgspec.structs import replace

from populations.controller import ghost_thinning, phases, result_merging
from populations.controller.assignments import learner_lifecycle, placement, results
from populations.controller.evaluation import games
from populations.controller.evolution import curriculum, exploring, pbt
from populations.controller.monitoring import alerts, champions, curves
from populations.controller.state import events, pauses
from populations.controller.state.epoch import Phase
from populations.controller.state.events import (
    ControllerStarted,
    Event,
    HeartbeatReceived,
    LearnerEvent,
    LinkGhosts,
    Now,
    RatingsFitted,
    RemoveCheckpoints,
)
from populations.controller.state.fits import Fits
from populations.controller.state.state import ControllerState
from populations.controller.state.transaction import Transaction
from populations.hooks.findings import Finding
from populations.league.standings import with_title_of
from populations.records.rows import GhostRow


def handle(state: ControllerState, event: Event, now: Now) -> Transaction:
    """Process one event: change the state in memory, and return the rows and commands to carry out.

    If anything raises an exception, the tables are restored to what they were before the event.
    """
    tx = state.begin(now)
    try:
        _take(state, event, tx)
    except BaseException:
        state.tables.undo()
        raise
    return tx


def _take(state: ControllerState, event: Event, tx: Transaction) -> None:
    was_closing = state.phase.name != "training"
    # Extend timeouts before any is checked: the controller may have stood still and heard nobody.
    learner_lifecycle.forgive_gap(state.phase, state.blame.pause, tx)
    _decide(state, event, tx)
    # Start a fit after the event's tallies are recorded, so that its snapshot contains them. The
    # pause between fits is skipped after training, when the run's end waits for them, and in
    # deterministic mode, where time must decide nothing.
    at_once = state.settings.config.deterministic or state.phase.name != "training"
    if state.fits.is_due(tx.now.monotonic_s, at_once=at_once):
        result_merging.merge(state.settings, state.indexes, state.phase, tx)
        state.fits.refit(tx)
    is_said = isinstance(event, HeartbeatReceived | LearnerEvent)
    if is_said and not (tx.rows or tx.commands) and state.phase.name != "stopping":
        return  # the next tick makes the checks below, so a message without effect skips them
    alerts.watch(state, tx)
    if state.phase.name != "over":
        exploring.ask(state.settings, state.indexes, state.phase, tx)
        curriculum.advance(state.settings, state.indexes, state.phase, tx)
        phases.advance(state, tx)
        learner_lifecycle.staff(state.phase, tx)
        # A paused run may try one assignment from time to time; `fill` then hands it out.
        pauses.retry(state.blame.pause, tx)
        placement.fill(state, tx)
    # The pool of ghosts exceeds its bound only by a new ghost, or at a start with a smaller bound.
    is_larger = isinstance(event, ControllerStarted) or any(
        isinstance(row, GhostRow) for row in tx.rows
    )
    if (
        is_larger
        and state.phase.name == "training"
        and ghost_thinning.thin(state, tx)
        and not state.settings.config.evaluation.share
    ):
        result_merging.merge(state.settings, state.indexes, state.phase, tx)
    # Curves come last, because they read the rows of all decisions above.
    curves.follow(state, tx)
    # The elapsed time alone is not worth a commit.
    if tx.rows:
        run, elapsed_s = state.tables.run, state.phase.elapsed_s(tx.now)
        # A change of phase always commits rows, so the time since the last commit is of one phase.
        closing_s = run.closing_s + was_closing * (elapsed_s - run.elapsed_s)
        tx.put(replace(run, elapsed_s=elapsed_s, closing_s=closing_s))


def _decide(state: ControllerState, event: Event, tx: Transaction) -> None:
    match event:
        case ControllerStarted():
            _start(state.fits, state.phase, tx)
        case events.LearnerJoined():
            learner_lifecycle.join(state, tx, event)
        case HeartbeatReceived():
            learner_lifecycle.hear(state.phase, tx, event)
        case events.AssignmentFinished():
            results.finish(state, tx, event)
        case events.AssignmentFailed():
            results.fail(state, tx, event)
        case events.LearnerLeft():
            learner_lifecycle.lose(state, tx, event.learner, reason=f"left: {event.reason}")
        case events.LearnerUnreachable():
            learner_lifecycle.give_up_unreachable(state, tx, event.learner)
        case events.LearnerExited():
            learner_lifecycle.exit_slot(state, tx, slot_index=event.slot, code=event.code)
        case events.StrangerSpoke():
            learner_lifecycle.fence(state.phase, state.blame, tx, event.learner)
        case RatingsFitted():
            _take_ratings(state, tx, event)
        case events.HyperparametersExplored():
            pbt.complete(state, tx, event)
        case events.GhostsLinked():
            for player in event.players:
                tx.put(replace(state.tables.ghosts[player], linked=True))
            pauses.take_links(state.blame, tx, event)
        case events.CheckpointsRemoved():
            ghost_thinning.forget(state.tables, tx, event.keys)
            for key in event.keys:
                if key in state.tables.checkpoints:
                    tx.put(replace(state.tables.checkpoints[key], state="deleted"))
        case Finding():
            alerts.record(state.measured, tx, event)
        case events.StopRequested():
            state.phase.stop(tx, reason=event.reason, interrupted=True)
        case events.Ticked():
            learner_lifecycle.check(state, tx, event)


def _start(fits: Fits, phase: Phase, tx: Transaction) -> None:
    now_s = tx.now.monotonic_s
    phase.started_s = phase.last_event_s = now_s
    phase.elapsed_before_s = tx.tables.run.elapsed_s
    run = tx.tables.run
    if phase.evaluation_only is not None:
        phases.evaluate_only(phase, tx, phase.evaluation_only)
    tx.put(replace(run, state="running", reason="", epoch=run.epoch + 1))
    tx.add_event("controller_started", epoch=run.epoch + 1, resumed=run.epoch > 0)
    # Repeat the disk work that the previous epoch committed: a kill may have prevented it.
    ghosts = tx.tables.ghosts.values()
    unlinked = tuple(ghost for ghost in ghosts if not ghost.linked)
    if unlinked:
        tx.commands.append(LinkGhosts(ghosts=unlinked))
    keys = [row.key for row in tx.tables.checkpoints.values() if row.state == "doomed"]
    keys += [ghost.key for ghost in ghosts if ghost.doomed]
    if keys:
        tx.commands.append(RemoveCheckpoints(keys=tuple(keys)))
    # One fit makes the rows of all populations, so they all cover the same tallies.
    fits.covered = min((row.num_tallies for row in tx.tables.ratings.values()), default=0)
    # Repeat the last fit: the journal lacks its spreads, which decisions of PBT need.
    fits.refit(tx, again=bool(tx.tables.ratings))


def _take_ratings(state: ControllerState, tx: Transaction, event: RatingsFitted) -> None:
    state.fits.end(event.ratings, tx.now.monotonic_s)
    state.indexes.strengths.forget_ratings()
    covered = state.fits.covered
    for known in event.ratings.values():
        assert known.row is not None, "a fit makes a row of each population"
        before = state.tables.ratings.get(known.row.population)
        tx.put(known.row if before is None else with_title_of(known.row, before))
        state.fits.covered = known.row.num_tallies
    # A repeated fit covers no new matches, so PBT can decide nothing new by it.
    if state.fits.covered > covered and state.phase.name == "training":
        pbt.evolve_waiting(state, tx)
    if state.fits.covered > covered:
        champions.announce(state.fits, state.phase, tx)
        games.hold(state.settings, tx)
    # The estimates come last, because they use the ratings that were put above.
    state.indexes.pending_matches.cover(state.fits.covered, estimate=state.fits.estimate)
