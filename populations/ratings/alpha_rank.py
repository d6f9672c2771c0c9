"""Alpha-rank: ranking of players by the share of time that an evolution spends at each of them.

A population plays one strategy until a mutant takes over. The probability of that depends on the
payoff and on the strength of selection, alpha. The ranking is the stationary distribution of this
Markov chain. All rates are computed as logarithms and states are eliminated without subtraction,
so alpha may be arbitrarily large.

Sources: Omidshafiei et al., "alpha-Rank: multi-agent evaluation by evolution" (Scientific Reports,
2019), equations 7-12; Grassmann, Taksar and Heyman, "Regenerative analysis and steady state
distributions for Markov chains" (Operations Research, 1985).

Shapes: N strategies; S states of the walk.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from populations.ratings.nash import FloatArray, normalized

# The population size m is OpenSpiel's default.
NUM_INDIVIDUALS = 50
TIE = 1e-12
"""Share of the largest difference of payoffs below which two payoffs are equal."""

SELECTION_AT_START = 40.0
"""Log-odds of the smallest difference of payoffs at which the sweep of alpha begins. With less, the
distribution may stay the same over a doubling and change later."""

MAX_DOUBLINGS = 60


def alpha_rank(
    payoff: npt.ArrayLike, *, alpha: float | None = None, num_individuals: int = NUM_INDIVIDUALS
) -> FloatArray:
    """Rank the strategies of a symmetric game by evolution in one population.

    Selection compares the two strategies of a match (the local model, OpenSpiel's default). The
    paper compares a strategy with the whole population; in a constant-sum game this is the same
    with alpha times m / (2 (m - 1)) for m individuals.

    Args:
        payoff: Payoff of the row against the column. Shape [N, N], N at least 1.
        alpha: Strength of selection, at least 0. None: doubled until the ranking no longer changes.
        num_individuals: Size of the population, at least 2.

    Returns:
        Stationary distribution [N].

    Raises:
        ValueError: If ``payoff`` is not square, is empty or not finite, or another argument is out
            of its range.
    """
    table = _square(payoff)
    gains = table.T - table  # [current, mutant]
    return _rank(gains, is_reachable=_others(len(table)), alpha=alpha, m=num_individuals)


def stationary(log_rates: FloatArray) -> FloatArray:
    """Return the stationary distribution of an irreducible chain, to full relative precision.

    The method is Grassmann's elimination in logarithms, so rates may be as small as e^-1e300.

    Args:
        log_rates: Logarithm of the rate from the row to the column, in any unit; -inf for no
            transition. The diagonal is ignored. Shape [S, S], S at least 1.

    Returns:
        Probabilities [S].
    """
    # The forward pass removes states from the last to the first, and adds detours through them.
    rates = log_rates.copy()
    size = len(rates)
    for last in range(size - 1, 0, -1):
        # A detour i -> last -> j has the rate q_i,last q_last,j / sum_k<last q_last,k.
        rates[:last, last] -= np.logaddexp.reduce(rates[last, :last])
        detour = rates[:last, last, None] + rates[None, last, :last]
        rates[:last, :last] = np.logaddexp(rates[:last, :last], detour)
    # The backward pass computes masses relative to state 0, whose mass is e^0.
    log_mass = np.zeros(size)
    for state in range(1, size):
        # mass_s = sum_k<s mass_k q_ks, with q_ks already divided by the rate out of s.
        log_mass[state] = np.logaddexp.reduce(log_mass[:state] + rates[:state, state])
    return normalized(np.exp(log_mass - log_mass.max()))


def log_fixation(gains: FloatArray, *, num_individuals: int) -> FloatArray:
    """Return the logarithm of a single mutant's fixation probability.

    Args:
        gains: u, alpha times the mutant's advantage in payoff. Any shape.
        num_individuals: Population size m.
    """
    # The probability is (1 - e^-u) / (1 - e^-mu), with the limit 1 / m at u = 0.
    u = np.abs(gains)
    # Where the limit replaces the result, any number but 0 avoids the logarithm of 0.
    safe = np.where(u < 1e-14, 1.0, u)
    # expm1 is exact near 0, where 1 - e^-u would lose digits.
    result = np.log(-np.expm1(-safe)) - np.log(-np.expm1(-num_individuals * safe))
    # A worse mutant's probability is e^(-(m - 1) |u|) times that of a better one.
    result = np.where(gains < 0.0, result - (num_individuals - 1) * safe, result)
    return np.asarray(np.where(u < 1e-14, -np.log(num_individuals), result), dtype=np.float64)


def _rank(
    gains: FloatArray, *, is_reachable: npt.NDArray[np.bool_], alpha: float | None, m: int
) -> FloatArray:
    if m < 2:
        raise ValueError(f"num_individuals must be at least 2, got {m}")
    if alpha is not None:
        if not (np.isfinite(alpha) and alpha >= 0.0):
            raise ValueError(f"alpha must be finite and at least 0, got {alpha!r}")
        return _walk(alpha * gains, is_reachable=is_reachable, m=m)
    if not gains.any():
        return np.full(len(gains), 1.0 / len(gains))
    # The sweep must start where even the smallest difference matters.
    clean = _without_ties(gains / np.abs(gains).max())
    strength = SELECTION_AT_START / float(np.abs(clean[clean != 0.0]).min())
    mass = _walk(strength * clean, is_reachable=is_reachable, m=m)
    # The limit of large alpha is reached when a doubling moves no mass.
    for _ in range(MAX_DOUBLINGS):
        strength *= 2.0
        before, mass = mass, _walk(strength * clean, is_reachable=is_reachable, m=m)
        if np.allclose(mass, before, rtol=1e-9, atol=1e-12):
            break
    return mass


def _walk(u: FloatArray, *, is_reachable: npt.NDArray[np.bool_], m: int) -> FloatArray:
    # Mutants are drawn uniformly; their factor 1 / (N - 1) is common to all rates and cancels.
    return stationary(np.where(is_reachable, log_fixation(u, num_individuals=m), -np.inf))


def _without_ties(gains: FloatArray) -> FloatArray:
    magnitude = np.abs(gains)
    # Otherwise the sweep would take the rounding error of a tie for the smallest difference.
    return np.where(magnitude <= TIE * magnitude.max(initial=0.0), 0.0, gains)


def _others(size: int) -> npt.NDArray[np.bool_]:
    return ~np.eye(size, dtype=np.bool_)


def _square(payoff: npt.ArrayLike) -> FloatArray:
    table = np.asarray(payoff, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] != table.shape[1] or table.size == 0:
        raise ValueError(f"payoff must be square with at least one row, got shape {table.shape}")
    if not np.isfinite(table).all():
        raise ValueError("every payoff must be finite")
    return table
