"""Phases of a run: what ends its training, then final matches, their ratings and the stop."""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean

from msgspec.structs import replace

from populations.config.run_config import RunConfig
from populations.controller.evaluation import share
from populations.controller.evaluation.finals import final_countdown, is_decided, is_time_over
from populations.controller.evolution.exploring import are_open
from populations.controller.evolution.halving import num_places
from populations.controller.monitoring import alerts
from populations.controller.state import goals
from populations.controller.state.epoch import Countdown, Measured, Phase, Settings
from populations.controller.state.events import EndRun, KillLearner
from populations.controller.state.fits import Fits
from populations.controller.state.leases import Crew
from populations.controller.state.state import ControllerState, Indexes
from populations.controller.state.transaction import Transaction
from populations.records.rows import PolicyRow, RunState
from populations.records.tables import Tables

_EVALUATED = "; evaluated for "


def advance(state: ControllerState, tx: Transaction) -> None:
    """Enter the next phase of the run if its condition holds."""
    phase, tables = state.phase, state.tables
    if phase.name == "evaluating" and phase.countdown is not None:
        # The finals need the last weights, so time counts once no training is open.
        trains = phase.evaluation_only is None and any(
            row.kind == "train" for row in tables.assignments.values()
        )
        may_begin = bool(state.crew.learners) and not trains
        phase.countdown.advance(tx.now.monotonic_s, may_begin=may_begin)
    if phase.name == "training":
        reason = stop_reason(state.settings, state.indexes, phase, tx)
        if reason is not None:
            phase.name, phase.reason = "evaluating", reason
            # Record evaluation's share before the finals, whose seconds must not count in it.
            phase.share_reached = share.reached(state.measured)
            tx.put(replace(tables.run, share_reached=phase.share_reached))
            phase.finals = final_countdown(state.settings.config, tables, state.crew)
            tx.add_event("training_stopped", reason=reason, evaluation_share=phase.share_reached)
    # This is no ``elif``: if no match is left to play, the run ends in the same event.
    if phase.name == "evaluating" and _is_evaluated(state):
        finals, pending = phase.finals, state.indexes.pending_matches
        if finals is not None and is_time_over(pending, state.measured):
            over_s = max(-finals.left_s, 0.0)
            tx.add_event("finals_stopped", evaluation_s=tables.run.evaluation_s, over_s=over_s)
        phase.stop(tx, reason=phase.reason, interrupted=False)
    if phase.name == "stopping":
        _end(state.fits, state.measured, tx)


def evaluate_only(phase: Phase, tx: Transaction, only: Countdown) -> None:
    """Begin an epoch that evaluates and does nothing else; the run ends when its time is over.

    The reason why the run ended before is kept at the front of the new reason.
    """
    before = tx.tables.run.reason.partition(_EVALUATED)[0]
    duration = f"evaluated for {only.duration_s:g} s"
    phase.name = "evaluating"
    phase.reason = f"{before}{_EVALUATED}{only.duration_s:g} s more" if before else duration
    tx.add_event("evaluation_only", duration_s=only.duration_s, before=before)


def stop_reason(settings: Settings, indexes: Indexes, phase: Phase, tx: Transaction) -> str | None:
    """Return the stop condition that holds, in words, or None; fail a run that cannot go on."""
    # A quarantined policy with a pending copy becomes active again, so the run can go on.
    if all(row.state != "active" and not row.pending for row in tx.tables.policies.values()):
        phase.fail(tx, reason="no active policy is left: all are quarantined")
        return None
    if (population := _empty_population(settings, tx.tables)) is not None:
        reason = f"{population} has no active policy, ghost or player: others have nobody to meet"
        phase.fail(tx, reason=reason)
        return None
    if (fault := goals.unreported(settings.config, indexes.goals)) is not None:
        phase.fail(tx, reason=fault)
        return None
    return limit_reached(settings.config, indexes, trained_s=phase.trained_s(tx.now, tx.tables.run))


def _empty_population(settings: Settings, tables: Tables) -> str | None:
    """Return a population without any player for its seats; None if every population has one.

    All of its policies failed before their first checkpoints, or its player's weights are damaged.
    """
    policies, ghosts = tables.policies.values(), tables.ghosts.values()
    there = {row.population for row in policies if row.state == "active"}
    # There are many ghosts, so they are searched only if a population has no active policy.
    missing = [name for name in settings.setup.populations if name not in there]
    there |= {ghost.population for ghost in ghosts if ghost.is_present} if missing else set()
    # An external player with share 1 has all agents of its population in training.
    external = settings.external_players
    there |= {name for name in missing if any(one.share == 1.0 for one in external.get(name, ()))}
    return next((name for name in missing if name not in there), None)


def limit_reached(config: RunConfig, indexes: Indexes, *, trained_s: float) -> str | None:
    """Return which limit of ``stop`` the run has reached, in words; None if it may go on."""
    stop = config.stop
    run = indexes.tables.run
    if stop.agent_steps is not None and run.agent_steps >= stop.agent_steps:
        return f"stop.agent_steps: the run has done {run.agent_steps} of {stop.agent_steps}"
    if stop.duration_s is not None and trained_s >= stop.duration_s:
        return f"stop.duration_s: training has taken {trained_s:.1f} of {stop.duration_s:g} s"
    if stop.rating is not None and _reached_rating(config, indexes.fits, stop.rating):
        return f"stop.rating: {goals.members_said(config)} whose lower bound is {stop.rating:g}"
    if (reason := goals.goal_reached(config, indexes.tables, indexes.goals)) is not None:
        return reason
    limit = stop.agent_steps_per_policy
    if limit is not None and _have_all_done(indexes.tables, limit):
        return f"stop.agent_steps_per_policy: every active policy has done {limit}"
    return None


def agent_steps_left(config: RunConfig, tables: Tables, crew: Crew) -> list[tuple[int, float]]:
    """Return total and remaining agent steps of the run, summed over policies.

    Returns:
        A pair (total, remaining) for each limit in agent steps that ``stop`` sets.
    """
    stop, left = config.stop, list[tuple[int, float]]()
    if (limit := stop.agent_steps) is not None:
        left.append((limit, limit - tables.run.agent_steps))
    if (limit := stop.agent_steps_per_policy) is not None:
        missing = defaultdict[str, list[int]](list)
        for row in tables.policies.values():
            if row.state == "active" or row.pending:
                missing[row.population].append(max(limit - row.agent_steps, 0))
        # Which policies halving will retire is unknown, so each place counts the mean of all.
        staying = {
            name: min(num_places(config, crew, name), len(own)) for name, own in missing.items()
        }
        missing_steps = sum(staying[name] * fmean(own) for name, own in missing.items())
        left.append((limit * sum(staying.values()), missing_steps))
    return left


def _have_all_done(tables: Tables, agent_steps: int) -> bool:
    """Return whether every policy in training, or waiting for a donor, has done ``agent_steps``.

    False if there is no such policy.
    """
    rows = tables.policies.values()
    in_training = (row for row in rows if row.state == "active" or row.pending)
    # This runs at every event, so the search ends at the first policy that has done less.
    first = next(in_training, None)
    if first is None or first.agent_steps < agent_steps:
        return False
    return all(row.agent_steps >= agent_steps for row in in_training)


def _reached_rating(config: RunConfig, fits: Fits, rating: float) -> bool:
    def has_reached(row: PolicyRow) -> bool:
        bound = goals.bound_at_any_time(fits, row)
        return bound is not None and bound >= rating

    return goals.have_reached(config, fits.league.tables, has_reached)


def _is_evaluated(state: ControllerState) -> bool:
    # An epoch that only evaluates does not wait for training that an earlier epoch left open. The
    # conditions are in order of their cost: `is_decided` looks at all players.
    nothing_open = not any(state.phase.is_for_now(row) for row in state.tables.assignments.values())
    return (
        nothing_open
        and not are_open(state.tables, state.indexes.members, state.phase)
        and not state.fits.running
        and not state.fits.are_stale()
        and is_decided(state)
    )


def _end(fits: Fits, measured: Measured, tx: Transaction) -> None:
    """End the run once all learners have left, or the time that they have to stop is over."""
    phase = measured.phase
    waited_s = tx.now.monotonic_s - phase.stopping_s
    # Wait for learners, which may be publishing checkpoints, and for the fit of the last matches.
    if (phase.crew.learners or fits.running) and waited_s <= phase.crew.patience.grace_s:
        return
    for index, slot in enumerate(phase.crew.slots):
        if slot.started_s is not None:
            tx.commands.append(KillLearner(slot=index))
    alerts.record_end(measured, tx)
    phase.name = "over"
    ended: RunState = "failed" if phase.failed else "stopped" if phase.interrupted else "finished"
    tx.put(replace(tx.tables.run, state=ended, reason=phase.reason))
    tx.add_event(f"run_{ended}", reason=phase.reason)
    tx.commands.append(EndRun())
