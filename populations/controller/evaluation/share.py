"""How much evaluation is due: its share of learner seconds, what is open counted as spent.

Several evaluations may be open at once, as many as make up what evaluation is short of. Each takes
about as long as a training assignment, or as long as evaluation is short of if that is more, so
that training never stands still for matches that no share has been earned for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from arena.config import LearnerSetup
from arena.matches.seating import plays_of
from populations.controller.indexes.player_strengths import PendingMatches
from populations.controller.state.epoch import Measured, Settings
from populations.controller.state.leases import Crew, Learner
from populations.records.rows import Json

MIN_MATCHES = 128
"""Least matches of an evaluation; more where a learner has more environments, one match each."""

MAX_EVALUATION_S = 60.0
"""Learner seconds of an assignment: fewer matches where they take long."""


def match_s(measured: Measured, learner: Learner | None = None) -> float | None:
    """Return learner seconds that an evaluation match takes; None: not known, or not to be minded.

    Of the learner's last evaluations, else of all last ones; before the first, what training shows.
    """
    if measured.settings.config.deterministic:
        return None
    own_s = None if learner is None else learner.match_times.match_s
    recent_s = own_s or measured.match_times.match_s
    if recent_s is not None:
        return recent_s
    # The time is rather too long, as training takes time beside its decisions. It is 0 while no
    # speed is known.
    longest_s = max(_episode_s(measured), default=0.0)
    return len(plays_of(measured.settings.setup.seats)) * longest_s or None


def _episode_s(measured: Measured) -> Iterator[float]:
    """Return seconds of an episode by each population's trainees."""
    setup, rows = measured.settings.setup, measured.tables.policies.values()
    in_turns = setup.spec.api == "aec"
    for name, population in setup.populations.items():
        trained = [row for row in rows if row.population == name and row.speed > 0.0]
        if trained:
            # A call of ``step`` is one decision in turns, else one of each agent.
            agents = 1 if in_turns else len(population.agents)
            decisions = measured.expected_length(trained[0]) * agents
            yield decisions * len(trained) / sum(row.speed for row in trained)


def reached(measured: Measured) -> float | None:
    """Return evaluation's share of learner seconds in this epoch's training; None: no seconds.

    In deterministic mode of the run's assignments. Once training is over, that at its end: finals
    would raise it.
    """
    if measured.phase.share_reached is not None:
        return measured.phase.share_reached
    training, evaluation = _spent(measured)
    return evaluation / (training + evaluation) if training + evaluation > 0.0 else None


def document(measured: Measured) -> dict[str, Json]:
    """Return what ``status --json`` has about evaluation: shares of learner seconds in training."""
    asked = measured.settings.config.evaluation.share
    return {"share_asked": asked, "share_reached": reached(measured)}


def _spent(measured: Measured) -> tuple[float, float]:
    """Return what training and evaluation have had in this epoch (deterministic: in the run)."""
    run = measured.tables.run
    if measured.settings.config.deterministic:
        return float(run.training_assignments), float(run.evaluation_assignments)
    # Seconds count from the start of the epoch: a run that goes on after its finals has no debt.
    before_training_s, before_evaluation_s = measured.spent_before_s
    return run.training_s - before_training_s, run.evaluation_s - before_evaluation_s


def short_of(measured: Measured, pending_matches: PendingMatches, crew: Crew) -> float:
    """Return learner seconds (deterministic: assignments) that evaluation lacks to its share."""
    share = measured.settings.config.evaluation.share
    training, evaluation = _spent(measured)
    if training <= 0.0:
        return 0.0
    for assignment_id, num_matches in pending_matches.open.items():
        holder = crew.holders.get(assignment_id)
        one_s = match_s(measured, None if holder is None else crew.learners.get(holder))
        # An open evaluation makes up for everything while its length is unknown.
        if one_s is None:
            return 0.0
        evaluation += num_matches * one_s
    # s (T + E) - E, with E as it will be after the open ones
    return share * (training + evaluation) - evaluation


def earned_matches(settings: Settings, one_s: float | None, short_s: float) -> int:
    """Count the matches of a learner's next evaluation; 1 at least.

    As many as there are environments, or as evaluation is short of if that is more, but no more
    than it is short of and a training assignment takes.

    Args:
        settings: Settings of the run.
        one_s: Learner seconds of a match (`match_s`).
        short_s: Seconds that evaluation is short of.
    """
    full = full_size(settings.setup)
    if one_s is None:
        return full
    seconds = min(short_s + settings.config.assignment.target_s, MAX_EVALUATION_S)
    return max(min(max(full, int(short_s / one_s)), int(seconds / one_s)), 1)


def full_size(setup: LearnerSetup) -> int:
    """Return matches of an evaluation where they take no time."""
    return max(MIN_MATCHES, setup.num_envs)


def at_most(num_matches: int, one_s: float | None) -> int:
    """Return as many matches of so many seconds as the longest evaluation has time for, 1 at
    least.
    """
    return num_matches if one_s is None else max(min(num_matches, int(MAX_EVALUATION_S / one_s)), 1)


def matches_in_time(measured: Measured, pending_matches: PendingMatches, learner: Learner) -> float:
    """Return how many matches a learner can end in the time that is named; 0: not one.

    What the learner holds comes first. Infinity where no time is named, or a match's is not known.
    """
    phase, one_s = measured.phase, match_s(measured, learner)
    countdown = phase.countdown
    if countdown is None:
        return math.inf
    if one_s is None:
        return math.inf if countdown.left_s > 0.0 else 0
    left_s = countdown.left_s
    for held in learner.held:
        held_s = pending_matches.open.get(held.assignment_id, 0) * one_s
        played_s = 0.0 if held.started_s is None else phase.last_event_s - held.started_s
        left_s -= max(held_s - played_s, 0.0)
    return max(int(left_s / one_s), 0)
