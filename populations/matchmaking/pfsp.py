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
"""Parameters of a Beta distribution are above 0."""


class PfspRule(Model):
    """Ghosts by how hard they are for the trainee: by its results, filled by what ratings predict.

    A win rate is the mean of `OpponentRequest.posterior`, or one draw from it (``thompson``), which
    explores opponents that were hardly met.
    """

    weighting: Weighting = "squared"
    """How strongly ``pfsp`` prefers hard opponents."""

    posterior: Posterior = "mean"
    """Win rate that ``pfsp`` takes: the posterior's mean, or a draw from it."""

    left_threshold: float = Field(LEFT_THRESHOLD, gt=0.0, lt=0.5)
    """``variance_left_rectified``: win rates below weigh as much as this one."""

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
        weighting: How strongly hard opponents are preferred.
        left_threshold: Win rate below which ``variance_left_rectified`` falls no further, so that
            hopeless opponents keep some weight.

    Returns:
        At least 0; all 0 under ``linear`` when the trainee beats everyone. Shape [N].

    Raises:
        ValueError: If ``win_rates`` leaves [0, 1], or the weighting is unknown.
    """
    # not (...).all() also refuses NaN
    if not ((win_rates >= 0.0) & (win_rates <= 1.0)).all():
        raise ValueError(f"win_rates must be in [0, 1], got {win_rates!r}")
    # f(x) of the paper, x the win rate: f_hard = (1 - x)^2, f_var = x (1 - x).
    losing = 1.0 - win_rates
    match weighting:
        case "squared":
            weights = losing**2
        case "linear":
            weights = losing
        case "linear_capped":
            # Opponents that win half or more weigh alike.
            weights = np.minimum(0.5, losing)
        case "variance":
            weights = win_rates * losing
        case "variance_left_rectified":
            # Constant below the threshold, where x (1 - x) would fall to 0.
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
    """`pfsp_weights` that sum to one; uniform where every weight is zero. Shape [N]."""
    return normalized(pfsp_weights(win_rates, weighting=weighting, left_threshold=left_threshold))


def draw_win_rates(points: FloatArray, lost: FloatArray, *, rng: np.random.Generator) -> FloatArray:
    """Draw from Beta(points, lost). Shapes [N], at least 0 and not both 0; in [0, 1]."""
    # A prediction may be so sure that nothing is left for the other side.
    return rng.beta(np.maximum(points, TINY), np.maximum(lost, TINY))


KIND = RuleKind(
    name="pfsp",
    settings=PfspRule,
    make=itself,
)
