"""Prioritized fictitious self-play (PFSP): more matches against opponents that are hard to beat.

Sources: Vinyals et al., "Grandmaster level in StarCraft II using multi-agent reinforcement
learning" (Nature, 2019), section "Multi-agent learning"; ``variance_left_rectified``: Han et al.,
"TStarBot-X" (2020) and its league, TLeague.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from pydantic import Field

from arena.config import Model
from populations.candidates import FloatArray
from populations.core import OpponentRequest
from populations.matchmaking.drawing import normalized
from populations.rule_kinds import RuleKind, itself

Weighting = Literal["squared", "linear", "linear_capped", "variance", "variance_left_rectified"]
Posterior = Literal["mean", "thompson"]

LEFT_THRESHOLD = 0.1

TINY = 1e-300
"""Lower limit for parameters of a Beta distribution, which must be above 0."""


class PfspRule(Model):
    """Rule that weighs ghosts by how hard they are for the trainee, by results and ratings.

    A win rate is the mean of `OpponentRequest.posterior`, or one draw from it (``thompson``), which
    explores opponents that were seldom played.
    """

    weighting: Weighting = "squared"
    """Function of the win rate by which ``pfsp`` weighs opponents, and so prefers hard ones."""

    posterior: Posterior = "mean"
    """Win rate that ``pfsp`` uses: the posterior's mean, or a draw from the posterior."""

    left_threshold: float = Field(LEFT_THRESHOLD, gt=0.0, lt=0.5)
    """``variance_left_rectified``: win rate below which all win rates have the same weight."""

    def weights(self, request: OpponentRequest, *, rng: np.random.Generator) -> FloatArray:
        """Return PFSP's weights. float64 [N]."""
        if self.posterior == "thompson":
            win_rates = draw_win_rates(*request.posterior(request.ghosts), rng=rng)
        else:
            win_rates = request.win_rates(request.ghosts)
        return pfsp_weights(win_rates, weighting=self.weighting, left_threshold=self.left_threshold)


def pfsp_weights(
    win_rates: FloatArray, *, weighting: Weighting, left_threshold: float = LEFT_THRESHOLD
) -> FloatArray:
    """Turn win rates into weights.

    Args:
        win_rates: Smoothed win rate of the trainee against each candidate, in [0, 1]. Shape [N].
        weighting: Function of the win rate, which sets how strongly hard opponents are preferred.
        left_threshold: Win rate below which ``variance_left_rectified`` falls no further, so that
            opponents which the trainee never beats have some weight.

    Returns:
        Weights, at least 0; all may be 0, if the trainee always wins. Shape [N].

    Raises:
        ValueError: If ``win_rates`` leaves [0, 1], or the weighting is unknown.
    """
    # The form ``not (...).all()`` refuses NaN, too.
    if not ((win_rates >= 0.0) & (win_rates <= 1.0)).all():
        raise ValueError(f"win_rates must be in [0, 1], got {win_rates!r}")
    # With x the win rate, the paper has f_hard = (1 - x)^2 and f_var = x (1 - x).
    losing = 1.0 - win_rates
    match weighting:
        case "squared":
            weights = losing**2
        case "linear":
            weights = losing
        case "linear_capped":
            # Opponents that win at least half of the matches have equal weights.
            weights = np.minimum(0.5, losing)
        case "variance":
            weights = win_rates * losing
        case "variance_left_rectified":
            # The weight is constant below the threshold, where x (1 - x) would fall to 0.
            rectified = np.maximum(win_rates, left_threshold)
            weights = rectified * (1.0 - rectified)
        case _:
            raise ValueError(
                f"weighting must be one of {', '.join(get_args(Weighting))}, got {weighting!r}"
            )
    return np.asarray(weights, dtype=np.float64)


def pfsp_probabilities(
    win_rates: FloatArray, *, weighting: Weighting, left_threshold: float = LEFT_THRESHOLD
) -> FloatArray:
    """Return `pfsp_weights` scaled to sum 1; uniform if every weight is 0. Shape [N]."""
    return normalized(pfsp_weights(win_rates, weighting=weighting, left_threshold=left_threshold))


def draw_win_rates(points: FloatArray, lost: FloatArray, *, rng: np.random.Generator) -> FloatArray:
    """Draw win rates from Beta(points, lost), in [0, 1]. Shape [N].

    Args:
        points: First parameters, at least 0. Shape [N].
        lost: Second parameters, at least 0 and not 0 where ``points`` is 0. Shape [N].
        rng: Generator of the draws.
    """
    # A parameter is 0 if ratings predict a score of exactly 0 or 1 and no match contradicts.
    return rng.beta(np.maximum(points, TINY), np.maximum(lost, TINY))


KIND = RuleKind(
    name="pfsp",
    settings=PfspRule,
    make=itself,
)
