"""Matches that ``stop.evaluation`` waits for: drawn whatever they tell about ratings.

A policy that beats the player of the goal surely learns little about its own rating from another
such match, so the schedule that follows ratings would let the run go on long after the goal.

Tests: `tests/populations/controller/evaluation/test_goal_matches.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from arena.types import PolicyId
from populations.config.sections import StopEvaluation
from populations.controller.evaluation.contenders import EvaluationPool
from populations.controller.state.goals import evaluation_bound, seekers_of_evaluation
from populations.controller.state.state import ControllerState
from populations.records.rows import PolicyRow

GOAL_PART = 1.0 / 3.0
"""Part of an evaluation's pairs that the goal has, beside its own, while it is open."""


def goal_pairs(
    state: ControllerState,
    known: EvaluationPool,
    *,
    may_play: npt.NDArray[np.bool_],
    num_pairs: int,
) -> Iterator[tuple[int, int]]:
    """Yield pairs with the player of ``stop.evaluation``, one as often as it is to have matches.

    By turns they have the policy with the best bound so far and the one that is rated best: where
    the first gets no better, another may.

    Args:
        state: The controller.
        known: The players.
        may_play: Whether a player's weights exist. bool [N].
        num_pairs: Pairs that the evaluation has besides.
    """
    goal = state.config.stop.evaluation
    # In finals nothing waits for it any more.
    if goal is None or state.phase != "training":
        return
    seekers = seekers_of_evaluation(state)
    rows = {
        index: state.tables.policies[policy]
        for index, player in enumerate(known.players)
        if may_play[index] and (policy := PolicyId(player.player.player)) in seekers
    }
    # x / (x + n) = GOAL_PART, for n others.
    number = max(round(num_pairs * GOAL_PART / (1.0 - GOAL_PART)), 1)
    # Where there is one, it is the other's in the next evaluation.
    turn = state.tables.run.next_assignment
    for index, player in enumerate(known.players):
        if player.player.player != state.config.stop.player:
            continue
        rivals = [
            rival
            for rival, row in rows.items()
            if len(state.ranked_populations) == 1 or row.population != player.population
        ]
        if rivals:
            nearest = max(rivals, key=lambda rival: _bound(state, rows[rival], goal))
            best = max(rivals, key=lambda rival: known.field.ratings[rival])
            for place in range(turn, turn + number):
                yield (best if place % 2 else nearest), index


def _bound(state: ControllerState, policy: PolicyRow, goal: StopEvaluation) -> float:
    bound = evaluation_bound(state, policy, goal)
    # A return's bound can be below any number that stands for none.
    return -math.inf if bound is None else bound
