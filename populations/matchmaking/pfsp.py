"""Prioritized fictitious self-play (PFSP): play more often against whom you fail to beat.

Source: Vinyals et al., "Grandmaster level in StarCraft II using multi-agent reinforcement learning"
(Nature, 2019), section "Multi-agent learning".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from populations.core import OpponentRequest, Opponents
from populations.matchmaking.latest import combine, draw_num_latest

FloatArray = npt.NDArray[np.float64]
Weighting = Literal["variance", "linear", "linear_capped", "squared"]

MIN_TOTAL = 1e-10
"""Weights that sum to less say nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PfspMatchmaker:
    """Ghosts by how hard they are for the trainee, as far as its generation has met them.

    Attributes:
        latest_ratio: Share of opponents that are the latest instead.
        weighting: How strongly hard opponents are preferred.
    """

    latest_ratio: float
    weighting: Weighting

    def draw(self, request: OpponentRequest, *, rng: np.random.Generator) -> Opponents:
        """The latest and ghosts with PFSP's probabilities."""
        num_latest = draw_num_latest(request, latest_ratio=self.latest_ratio, rng=rng)
        num_ghosts = request.num_opponents - num_latest
        if num_ghosts == 0:
            return combine(request, num_latest=num_latest, ghosts=(), rng=rng)
        win_rates = np.array(
            [request.win_rate(request.entrant, ghost.entrant) for ghost in request.ghosts]
        )
        probabilities = pfsp_probabilities(win_rates, weighting=self.weighting)
        drawn = rng.choice(len(request.ghosts), size=num_ghosts, p=probabilities)
        ghosts = [request.ghosts[int(index)] for index in drawn]
        return combine(request, num_latest=num_latest, ghosts=ghosts, rng=rng)


def pfsp_probabilities(win_rates: FloatArray, *, weighting: Weighting) -> FloatArray:
    """Turn win rates into the probability of meeting each opponent.

    Args:
        win_rates: Smoothed win rate of the trainee against each candidate, in [0, 1]. Shape [N],
            N >= 1.
        weighting: How strongly hard opponents are preferred.

    Returns:
        Probabilities that sum to one. Shape [N]. Uniform if every weight is zero, which happens
        under ``linear`` when the trainee beats everyone.

    Raises:
        ValueError: If ``win_rates`` is empty or leaves [0, 1], or the weighting is unknown.
    """
    # not (...).all() also refuses NaN
    if win_rates.size == 0 or not ((win_rates >= 0.0) & (win_rates <= 1.0)).all():
        raise ValueError(f"win_rates must be one or more numbers in [0, 1], got {win_rates!r}")
    losing = 1.0 - win_rates
    match weighting:
        case "squared":
            weights = losing**2
        case "linear":
            weights = losing
        case "linear_capped":
            weights = np.minimum(0.5, losing)
        case "variance":
            weights = win_rates * losing
        case _:
            raise ValueError(
                f"weighting must be variance, linear, linear_capped or squared, got {weighting!r}"
            )
    total = float(weights.sum())
    if total < MIN_TOTAL:
        return np.full(win_rates.shape, 1.0 / win_rates.size)
    return np.asarray(weights / total)
