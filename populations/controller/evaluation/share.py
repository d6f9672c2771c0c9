"""Amount of evaluation that is due by its share of learner seconds; open evaluations count as done.

Several evaluations may be open at once, as many as make up for the seconds that evaluation lacks.
Each takes about as long as a training assignment, or as the lacking seconds if these are more, so
that training never waits for matches beyond evaluation's share.
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
"""Least matches of a full evaluation; a learner with more environments plays one in each."""

MAX_EVALUATION_S = 60.0
"""Bound on the learner seconds of an evaluation, which reduces the number of long matches."""


def match_s(measured: Measured, learner: Learner | None = None) -> float | None:
    """Return learner seconds of an evaluation match; None: not known, or deterministic mode.

    They come from the learner's last evaluations, else from those of all learners, else from the
    length of episodes and the speed in training.
    """
    if measured.settings.config.deterministic:
        return None
    own_s = None if learner is None else learner.match_times.match_s
    recent_s = own_s or measured.match_times.match_s
    if recent_s is not None:
        return recent_s
    # This estimate is rather too long, as training speed includes time for updates. It is 0 while
    # no speed is known.
    longest_s = max(_episode_s(measured), default=0.0)
    return len(plays_of(measured.settings.setup.seats)) * longest_s or None


def _episode_s(measured: Measured) -> Iterator[float]:
    """Yield the seconds of an episode by the training speed of each population that has one."""
    setup, rows = measured.settings.setup, measured.tables.policies.values()
    in_turns = setup.spec.api == "aec"
    for name, population in setup.populations.items():
        trained = [row for row in rows if row.population == name and row.speed > 0.0]
        if trained:
            # A call of ``step`` has one decision if agents take turns, else one of each agent.
            agents = 1 if in_turns else len(population.agents)
            decisions = measured.expected_length(trained[0]) * agents
            yield decisions * len(trained) / sum(row.speed for row in trained)


def reached(measured: Measured) -> float | None:
    """Return evaluation's share of learner seconds in this epoch's training; None: no seconds.

    In deterministic mode it is the share of the run's assignments. After training it is the share
    at its end, because finals would raise it.
    """
    if measured.phase.share_reached is not None:
        return measured.phase.share_reached
    training, evaluation = _spent(measured)
    return evaluation / (training + evaluation) if training + evaluation > 0.0 else None


def document(measured: Measured) -> dict[str, Json]:
    """Return the part of ``status --json`` about evaluation's configured and reached share."""
    asked = measured.settings.config.evaluation.share
    return {"share_asked": asked, "share_reached": reached(measured)}


def _spent(measured: Measured) -> tuple[float, float]:
    """Return learner seconds of training and of evaluation in this epoch.

    In deterministic mode these are the numbers of assignments in the run.
    """
    run = measured.tables.run
    if measured.settings.config.deterministic:
        return float(run.training_assignments), float(run.evaluation_assignments)
    # Seconds count from the start of the epoch, so that finals of an earlier one do not count.
    before_training_s, before_evaluation_s = measured.spent_before_s
    return run.training_s - before_training_s, run.evaluation_s - before_evaluation_s


def short_of(measured: Measured, pending_matches: PendingMatches, crew: Crew) -> float:
    """Return learner seconds (deterministic: assignments) that evaluation is short of its share."""
    share = measured.settings.config.evaluation.share
    training, evaluation = _spent(measured)
    if training <= 0.0:
        return 0.0
    for assignment_id, num_matches in pending_matches.open.items():
        holder = crew.holders.get(assignment_id)
        one_s = match_s(measured, None if holder is None else crew.learners.get(holder))
        # While the length of an open evaluation is unknown, no further one is due.
        if one_s is None:
            return 0.0
        evaluation += num_matches * one_s
    # s (T + E) - E, where E includes the open evaluations.
    return share * (training + evaluation) - evaluation


def earned_matches(settings: Settings, one_s: float | None, short_s: float) -> int:
    """Return the number of matches of a learner's next evaluation, at least 1.

    It is `full_size`, or the matches in the seconds that evaluation is short of if these are more,
    but at most those in these seconds and the time of a training assignment together.

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
    """Return the matches of a full evaluation, without regard to their time."""
    return max(MIN_MATCHES, setup.num_envs)


def at_most(num_matches: int, one_s: float | None) -> int:
    """Limit matches of ``one_s`` seconds (None: no limit) to the longest evaluation; at least 1."""
    return num_matches if one_s is None else max(min(num_matches, int(MAX_EVALUATION_S / one_s)), 1)


def matches_in_time(measured: Measured, pending_matches: PendingMatches, learner: Learner) -> float:
    """Return how many matches a learner can end before the time limit of evaluation.

    Its open assignments come first. Infinity if there is no limit, or a match's time is not known.
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
