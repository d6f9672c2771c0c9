"""Prices of evaluation: what it costs training, by the learner that carries it out.

Tests: `tests/populations/controller/evaluation/test_prices.py`.
"""

from __future__ import annotations

from populations.controller.evaluation.share import short_of
from populations.controller.state.leases import QUEUED_PER_LEARNER, Learner
from populations.controller.state.state import ControllerState

CLEARLY = 0.8
"""Ratio of two measurements below which one is taken for less: those of equal learners differ by
about a tenth from one assignment to the next."""


def is_left_to_cheaper(state: ControllerState, learner: Learner) -> bool:
    """Return whether a learner leaves evaluation that is due to one where it costs less."""
    # In deterministic mode measured times must decide nothing.
    if state.config.deterministic:
        return False
    # What a learner is at and what it has queued come before an evaluation that it takes next: if
    # more time than that is lacking, those that are cheaper do not keep up, or are stuck.
    patience_s = (1 + QUEUED_PER_LEARNER) * state.config.assignment.target_s
    return 0.0 < short_of(state) < patience_s and any(
        is_cheaper(other, learner) for other in state.learners.values()
    )


def is_cheaper(other: Learner, learner: Learner) -> bool:
    """Return whether training loses clearly less by evaluation on another learner.

    Less for each match, and no more for each second: evaluation's share is of seconds, so that many
    quick matches in the time of the fastest learner would cost more training than before. Learners
    that have not trained the same population, or not evaluated yet, are not compared.
    """
    match_s, other_match_s = learner.match_times.match_s, other.match_times.match_s
    common = learner.speeds.keys() & other.speeds.keys()
    if match_s is None or other_match_s is None or not common:
        return False
    # Agent steps lost by a second: v; by a match of t seconds: t v
    speed = sum(learner.speeds[name] for name in common)
    other_speed = sum(other.speeds[name] for name in common)
    return CLEARLY * other_speed < speed and other_match_s * other_speed < CLEARLY * match_s * speed
