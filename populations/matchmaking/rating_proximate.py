"""Rating-proximate matchmaking: opponents of similar strength are drawn most often.

Source: Jaderberg et al., "Human-level performance in 3D multiplayer games with population-based
reinforcement learning" (Science, 2019), For The Win (FTW): weight exp(-(P - 1/2)^2 / (2 s^2)) for
the predicted probability P of winning; s = 1/6.
"""

from __future__ import annotations

import math

import numpy as np
from pydantic import Field

from arena.config import Model
from populations.candidates import FloatArray
from populations.core import OpponentRequest
from populations.rule_kinds import RuleKind, itself

ELO_SCALE = 400.0
MAX_EXPONENT = 690.0
"""Limit of exponents, above which exp would overflow."""


class RatingProximateRule(Model):
    """Rule that weighs ghosts by how close the predicted score is to 1/2."""

    rating_width: float = Field(1.0 / 6.0, gt=0.0, le=100.0)
    """``rating_proximate``: standard deviation of the expected score around even matches."""

    def weights(self, request: OpponentRequest, *, rng: np.random.Generator) -> FloatArray:
        """Return FTW's weights; unrated ghosts count as even. float64 [N]."""
        del rng
        expected = request.predicted(request.ghosts)
        # The weight is exp(-(P - 1/2)^2 / (2 s^2)). With a tiny s all weights may underflow to 0;
        # `normalized` then makes the distribution uniform.
        return np.exp(-((expected - 0.5) ** 2) / (2.0 * self.rating_width**2))


def expected_scores(rating: float | FloatArray, opponents: FloatArray) -> FloatArray:
    """Return the expected score of a rating against others, in [0, 1]; 1/2 where either is NaN."""
    # The score of Elo is 1 / (1 + 10^((R_j - R_i) / 400)).
    exponents = (math.log(10.0) / ELO_SCALE) * (opponents - rating)
    scores = 1.0 / (1.0 + np.exp(np.clip(exponents, -MAX_EXPONENT, MAX_EXPONENT)))
    return np.where(np.isnan(scores), 0.5, scores)


KIND = RuleKind(
    name="rating_proximate",
    settings=RatingProximateRule,
    make=itself,
)
