"""Rating-proximate matching: opponents against whom the outcome is open.

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
"""e to a higher power overflows."""


class RatingProximateRule(Model):
    """Ghosts by how even a match with them would be."""

    rating_width: float = Field(1.0 / 6.0, gt=0.0, le=100.0)
    """``rating_proximate``: standard deviation of the expected score around even matches."""

    def weights(self, request: OpponentRequest, *, rng: np.random.Generator) -> FloatArray:
        """Return FTW's weights; unrated ghosts count as even. float64 [N]."""
        del rng
        expected = request.predicted(request.ghosts)
        # exp(-(P - 1/2)^2 / (2 s^2)); with a tiny s all may vanish, and `normalized` makes them
        # uniform.
        return np.exp(-((expected - 0.5) ** 2) / (2.0 * self.rating_width**2))


def expected_scores(rating: float | FloatArray, opponents: FloatArray) -> FloatArray:
    """Return the score of a rating against others, in [0, 1]; 1/2 where either is NaN."""
    # 1 / (1 + 10^((R_j - R_i) / 400))
    exponents = (math.log(10.0) / ELO_SCALE) * (opponents - rating)
    scores = 1.0 / (1.0 + np.exp(np.clip(exponents, -MAX_EXPONENT, MAX_EXPONENT)))
    return np.where(np.isnan(scores), 0.5, scores)


KIND = RuleKind(
    name="rating_proximate",
    settings=RatingProximateRule,
    make=itself,
)
