"""Matchmaking by quality scores: a ghost is drawn less often after each win against it.

Source: OpenAI et al., "Dota 2 with large scale deep reinforcement learning" (2019), appendix N:
80% of games against the latest, 20% against the past by a softmax of qualities; a beaten opponent
loses eta / (N p) of its quality, a new one enters with the highest.
"""

from __future__ import annotations

import math

import numpy as np
from pydantic import Field

from arena.config import Model
from populations.candidates import FloatArray
from populations.core import OpponentRequest
from populations.rule_kinds import RuleKind, itself

LATEST_RATIO = 0.8
"""Share of the latest if the configuration does not set ``matchmaking.latest_ratio``."""

MAX_SPREAD = 10.0
"""Maximum distance of a quality below the highest, so the least weight is e**-10 of the highest."""


class QualityRule(Model):
    """Rule that weighs ghosts by a softmax of their qualities, which are its `GhostMemory`."""

    quality_step: float = Field(0.01, gt=0.0, le=1.0)
    """``quality``: step size by which a win lowers a ghost's quality, and so its share."""

    def number_of_new(self, numbers: FloatArray) -> float:
        """Return the first quality of a new ghost: the highest existing one; 0 without ghosts."""
        return float(numbers.max()) if len(numbers) else 0.0

    def number_after(self, numbers: FloatArray, index: int, *, num_wins: int) -> float:
        """Return the quality of a ghost that the trainee has beaten."""
        return lowered_quality(numbers, index, num_wins=num_wins, quality_step=self.quality_step)

    def weights(self, request: OpponentRequest, *, rng: np.random.Generator) -> FloatArray:
        """Return the weights exp(q - highest q). float64 [N]."""
        del rng
        qualities = request.ghosts.qualities
        # A common factor changes no probability, whereas exp(q) itself may overflow or underflow.
        return np.asarray(np.exp(qualities - qualities.max()))


def lowered_quality(
    qualities: FloatArray, index: int, *, num_wins: int, quality_step: float
) -> float:
    """Return the quality of a ghost after the trainee has beaten it.

    Each win subtracts eta / (N p), with p the ghost's probability by the softmax of all qualities
    at that time. Losses and draws change nothing.

    Args:
        qualities: Qualities of all ghosts before the wins. float64 [N].
        index: Position of the beaten ghost.
        num_wins: Number of wins against the ghost.
        quality_step: Step size eta.
    """
    highest = float(qualities.max())
    weights = np.exp(qualities - highest)
    quality = float(qualities[index]) - highest
    # Only the beaten ghost's weight changes from win to win, so the sum of the others is constant.
    others = float(weights.sum()) - math.exp(quality)
    for _ in range(num_wins):
        # The loop must end before the division, as exp of a quality far below the limit is 0.
        if quality <= -MAX_SPREAD:
            break
        weight = math.exp(quality)
        # q -= eta / (N p) with p = weight / (others + weight)
        quality -= quality_step * (others + weight) / (len(qualities) * weight)
        # 1 / p has no bound, so without a limit one win could exclude a rare ghost for good.
        quality = max(quality, -MAX_SPREAD)
    # A win must not raise a quality that was below the limit before.
    return highest + min(quality, float(qualities[index]) - highest)


KIND = RuleKind(
    name="quality",
    settings=QualityRule,
    make=itself,
    usual={"latest_ratio": LATEST_RATIO},
)
