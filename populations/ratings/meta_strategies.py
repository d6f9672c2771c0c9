"""Meta-strategies: distributions over the players of a league for new policies to respond to.

Sources: Lanctot et al., "A unified game-theoretic approach to multiagent reinforcement learning"
(NeurIPS, 2017), section 3.1 and appendix F (PSRO, projected replicator dynamics); Muller et al., "A
generalized training approach for multiagent learning" (ICLR, 2020) (alpha-rank).

In this module ``payoff`` is the expected score of the row against the column minus 1/2, an
antisymmetric matrix [N, N] with players in the order in which they joined the league.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from populations.ratings.alpha_rank import alpha_rank
from populations.ratings.nash import FloatArray, antisymmetric, max_entropy_nash, normalized

MetaStrategy = Literal["uniform", "uniform_biased", "nash", "prd", "alpha_rank", "latest"]

PRD_ITERATIONS = 4000
PRD_STEP = 0.05
PRD_FLOOR = 1e-6


def meta_strategy(kind: MetaStrategy, payoff: npt.ArrayLike) -> FloatArray:
    """Return the meta-strategy of a kind: the mixture of players that new policies train against.

    Args:
        kind: ``uniform``; ``uniform_biased`` (favours recent players); ``nash`` (the equilibrium of
            highest entropy); ``prd`` (projected replicator dynamics: near an equilibrium, every
            player keeps some mass); ``alpha_rank``; ``latest`` (the last player only: self-play).
        payoff: Payoff, as in the module's docstring, with N at least 1.

    Returns:
        Probabilities [N].

    Raises:
        ValueError: If ``kind`` is unknown, or ``payoff`` is not antisymmetric or not finite.
    """
    game = antisymmetric(payoff)
    if kind == "uniform":
        return uniform(len(game))
    if kind == "uniform_biased":
        return uniform_biased(len(game))
    if kind == "latest":
        return latest(len(game))
    if kind == "nash":
        return max_entropy_nash(game)
    if kind == "prd":
        return projected_replicator_dynamics(game)[0]
    if kind == "alpha_rank":
        return alpha_rank(game)
    raise ValueError(
        f"a meta-strategy must be one of {', '.join(get_args(MetaStrategy))}, got {kind!r}"
    )


def uniform(size: int) -> FloatArray:
    """Return equal masses for all players [size]."""
    return np.full(size, 1.0 / size)


def uniform_biased(size: int) -> FloatArray:
    """Return masses by order of joining, each e times the previous one [size]."""
    # Exponents are at most 0, because e^k itself overflows for more than 709 players.
    return normalized(np.exp(np.arange(size, dtype=np.float64) - (size - 1)))


def latest(size: int) -> FloatArray:
    """Return all mass on the last player [size]."""
    weights = np.zeros(size)
    weights[-1] = 1.0
    return weights


def projected_replicator_dynamics(
    payoff: npt.ArrayLike,
    *,
    num_iterations: int = PRD_ITERATIONS,
    step: float = PRD_STEP,
    floor: float = PRD_FLOOR,
) -> tuple[FloatArray, FloatArray]:
    """Return the time averages of two populations that evolve from the uniform strategies.

    Args:
        payoff: Payoff of rows against columns in a zero-sum game. Shape [N, M], both at least 1.
        num_iterations: Number of steps of the dynamics.
        step: Length of a step, the paper's dt.
        floor: Minimum mass of a strategy, the paper's gamma.

    Returns:
        Mean strategies of rows [N] and columns [M]; equal where ``payoff`` is antisymmetric.

    Raises:
        ValueError: If ``floor`` is below 0 or above 1 / max(N, M).
    """
    game = np.asarray(payoff, dtype=np.float64)
    if not 0.0 <= floor * max(game.shape) <= 1.0:
        raise ValueError(f"floor must be in [0, 1 / {max(game.shape)}], got {floor!r}")
    row, column = uniform(game.shape[0]), uniform(game.shape[1])
    # The time average converges to an equilibrium, around which the last point may circle.
    row_sum, column_sum = row.copy(), column.copy()
    for _ in range(num_iterations):
        # Both fitnesses are computed before either side moves; that of the columns is -p A, because
        # the game is zero-sum.
        row_fitness, column_fitness = game @ column, -(row @ game)
        # dp_i / dt = p_i ((A q)_i - p A q), projected back onto the simplex with a floor.
        row = project_to_simplex(row + step * row * (row_fitness - row @ row_fitness), floor=floor)
        column = project_to_simplex(
            column + step * column * (column_fitness - column @ column_fitness), floor=floor
        )
        row_sum += row
        column_sum += column
    return normalized(row_sum), normalized(column_sum)


def project_to_simplex(values: FloatArray, *, floor: float = 0.0) -> FloatArray:
    """Return the nearest distribution in which every strategy has at least ``floor``.

    Source: Wang and Carreira-Perpinan, "Projection onto the probability simplex" (2013).

    Args:
        values: Any numbers [N].
        floor: Minimum mass of a strategy, from 0 to 1 / N.

    Returns:
        Probabilities [N].
    """
    size = len(values)
    room = 1.0 - size * floor
    if room <= 0.0:
        return uniform(size)
    # The floor is subtracted, and the remainder is projected on a simplex of size ``room``.
    above = values - floor
    # If the answer is in the interior, all values shift by the same amount, and no sort is needed.
    if above.min() >= 0.0:
        shifted = above + (room - above.sum()) / size
        if shifted.min() >= 0.0:
            return np.asarray(shifted + floor, dtype=np.float64)
    ordered = np.sort(above)[::-1]
    # The shift t solves sum max(v - t, 0) = room; the sort finds which values stay positive.
    surplus = (np.cumsum(ordered) - room) / np.arange(1, size + 1)
    shift = surplus[np.flatnonzero(ordered > surplus)[-1]]
    return np.asarray(np.maximum(above - shift, 0.0) + floor, dtype=np.float64)
