"""Quality scores: ghosts that were not beaten for long are drawn more often.

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
"""Share of the latest where the configuration says none."""

MAX_SPREAD = 10.0
"""No quality falls further below the highest: e**-10 of its weight remains."""


class QualityRule(Model):
    """A softmax of the ghosts' qualities, which are its `GhostMemory`."""

    quality_step: float = Field(0.01, gt=0.0, le=1.0)
    """``quality``: how fast beaten ghosts are met less."""

    def number_of_new(self, numbers: FloatArray) -> float:
        """Return the highest quality: a new ghost enters with it."""
        return float(numbers.max()) if len(numbers) else 0.0

    def number_after(self, numbers: FloatArray, index: int, *, num_wins: int) -> float:
        """Return the quality of a ghost that the trainee has beaten."""
        return lowered_quality(numbers, index, num_wins=num_wins, quality_step=self.quality_step)

    def weights(self, request: OpponentRequest, *, rng: np.random.Generator) -> FloatArray:
        """Return exp(q - highest q). float64 [N]."""
        del rng
        qualities = request.ghosts.qualities
        # A common factor changes no probability, and exp(q) itself may overflow or vanish.
        return np.asarray(np.exp(qualities - qualities.max()))


def lowered_quality(
    qualities: FloatArray, index: int, *, num_wins: int, quality_step: float
) -> float:
    """Return the quality of a ghost after the trainee has beaten it.

    Win by win: q -= eta / (N p), p its probability by the softmax of all qualities at that time.
    Losses and draws change nothing.

    Args:
        qualities: Qualities of all ghosts, before. float64 [N].
        index: Position of the beaten ghost.
        num_wins: Number of wins against it.
        quality_step: eta.
    """
    highest = float(qualities.max())
    weights = np.exp(qualities - highest)
    quality = float(qualities[index]) - highest
    # Only the beaten ghost's weight changes from win to win.
    others = float(weights.sum()) - math.exp(quality)
    for _ in range(num_wins):
        # Stop before the division: exp of a quality far below the limit is zero.
        if quality <= -MAX_SPREAD:
            break
        weight = math.exp(quality)
        # q -= eta / (N p) with p = weight / (others + weight)
        quality -= quality_step * (others + weight) / (len(qualities) * weight)
        # 1 / p has no bound: one more win would throw a rare ghost out for good.
        quality = max(quality, -MAX_SPREAD)
    # A win raises no quality, also one that was below the limit before.
    return highest + min(quality, float(qualities[index]) - highest)


KIND = RuleKind(
    name="quality",
    settings=QualityRule,
    make=itself,
    usual={"latest_ratio": LATEST_RATIO},
)
