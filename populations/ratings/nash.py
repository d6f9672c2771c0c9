"""Equilibria of zero-sum games given as matrices, and skills measured against them.

Sources: von Neumann's minimax theorem as a linear program; Balduzzi, Tuyls, Perolat and Graepel,
"Re-evaluating evaluation" (NeurIPS, 2018), section 3 and appendix D (Nash averaging); Goldman and
Tucker, "Theory of linear programming" (1956) (strict complementarity); Boyd and Vandenberghe,
"Convex optimization" (2004), section 11.7 (the primal-dual method).

Shapes: N players (strategies), M strategies of the other side.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

RANK_TOLERANCE = 1e-10
"""Share of the largest singular value below which a singular value is 0."""

NEGLIGIBLE = 1e-9
"""Share of the largest advantage below which an advantage is 0."""

MAX_NEWTON_STEPS = 300
MAX_HALVINGS = 50
SETTLED_GAP = 1e-18
SETTLED_STEP = 1e-13


def zero_sum_nash(payoff: npt.ArrayLike) -> tuple[FloatArray, FloatArray, float]:
    """Solve a zero-sum game by linear programming.

    Args:
        payoff: Payoff of the row player against the column player. Shape [N, M], both at least 1.

    Returns:
        One optimal strategy of the row player [N], one of the column player [M], and the value.

    Raises:
        ValueError: If ``payoff`` is no matrix, is empty, or has a number that is not finite.
    """
    from scipy.optimize import linprog

    game = _matrix(payoff)
    num_rows, num_columns = game.shape
    # The game is shifted and scaled, so that the solver's absolute tolerances fit games of any
    # size.
    centre, scale = float(game.mean()), _scale(game - game.mean())
    scaled = (game - centre) / scale
    # The program maximizes v subject to (p A)_j >= v for every column j.
    solution = linprog(
        np.append(np.zeros(num_rows), -1.0),
        A_ub=np.hstack([-scaled.T, np.ones((num_columns, 1))]),
        b_ub=np.zeros(num_columns),
        A_eq=np.append(np.ones(num_rows), 0.0)[None, :],
        b_eq=[1.0],
        bounds=[(0.0, None)] * num_rows + [(None, None)],
        method="highs",
    )
    if solution.status != 0:
        raise RuntimeError(f"the linear program has a solution, but got {solution.message!r}")
    row = _distribution(solution.x[:num_rows])
    # The dual variables of the columns' constraints are the column player's strategy; the solver
    # returns them with negative sign.
    column = _distribution(-solution.ineqlin.marginals)
    return row, column, float(row @ game @ column)


def max_entropy_nash(advantages: npt.ArrayLike) -> FloatArray:
    """Find the equilibrium of highest entropy of a symmetric zero-sum game.

    It is unique, does not depend on the order of players, and divides a player's mass among its
    copies. A linear program finds which players have mass in some equilibrium. The set of
    equilibria then has a relative interior, in which Newton's method maximizes the entropy.

    Args:
        advantages: Advantage of i over j; antisymmetric. Shape [N, N], N at least 1.

    Returns:
        Probabilities [N]. If float64 cannot decide whether a player has mass, they are those of
        another equilibrium.

    Raises:
        ValueError: If ``advantages`` is not antisymmetric, is empty or not finite.
    """
    game = antisymmetric(advantages)
    game = game / _scale(game)
    # Advantages below the linear program's tolerance might make it fail, and do not matter.
    game[np.abs(game) < NEGLIGIBLE] = 0.0
    found = _relative_interior(game)
    if found is None:
        return zero_sum_nash(game)[0]
    inside, has_mass = found
    # The equilibria are the p with p > 0 and A p = 0 for players with mass ("inside"), and A p <= 0
    # for the others ("outside"); the value of the game is 0.
    outside_game = game[np.ix_(~has_mass, has_mass)]
    inside_game = game[np.ix_(has_mass, has_mass)]
    size = len(inside_game)
    equations = np.vstack([inside_game, np.ones((1, size))])
    left, singular, right = np.linalg.svd(equations, full_matrices=True)
    # The null space of the equations has the directions in which equilibria differ.
    rank = int((singular > RANK_TOLERANCE * singular[0]).sum())
    # The linear program solves the equations only to about 1e-7, so the solution is projected.
    error = equations @ inside[has_mass] - np.append(np.zeros(size), 1.0)
    start = inside[has_mass] - right[:rank].T @ ((left[:, :rank].T @ error) / singular[:rank])
    slack = -outside_game @ start
    # Without a strictly inner point float64 cannot identify the set, and any equilibrium is used.
    if np.any(start <= 0.0) or np.any(slack <= 0.0) or np.abs(inside_game @ start).max() > 1e-9:
        return zero_sum_nash(game)[0]
    mixture = np.zeros(len(game))
    mixture[has_mass] = _max_entropy(start, directions=right[rank:].T, outside=outside_game)
    return normalized(mixture)


def nash_averaging(advantages: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return every player's payoff against the equilibrium of highest entropy, as its skill.

    Copies of a player change no skill, so the ranking does not depend on how many similar players a
    league has.

    Args:
        advantages: Advantage of i over j (log-odds, Elo, or score minus 1/2); antisymmetric. Shape
            [N, N], N at least 1.

    Returns:
        Skills [N] in the units of ``advantages``, 0 for players with mass and at most 0 for all;
        and the equilibrium [N].

    Raises:
        ValueError: As for `max_entropy_nash`.
    """
    game = antisymmetric(advantages)
    mixture = max_entropy_nash(game)
    return game @ mixture, mixture


def antisymmetric(advantages: npt.ArrayLike) -> FloatArray:
    """Check a symmetric zero-sum game, and return it exactly antisymmetric.

    Raises:
        ValueError: If the matrix is not antisymmetric, is empty or not finite.
    """
    game = _matrix(advantages)
    if game.shape[0] != game.shape[1] or not np.allclose(
        game, -game.T, rtol=1e-9, atol=1e-12 * max(1.0, float(np.abs(game).max()))
    ):
        raise ValueError(f"the matrix must be antisymmetric, got shape {game.shape}")
    # The result is exactly antisymmetric, because in float64 a - b is exactly -(b - a).
    return 0.5 * (game - game.T)


def normalized(masses: FloatArray) -> FloatArray:
    """Divide masses by their sum, which must be positive. Any shape."""
    return np.asarray(masses / masses.sum(), dtype=np.float64)


def _matrix(values: npt.ArrayLike) -> FloatArray:
    matrix = np.asarray(values, dtype=np.float64)
    if matrix.ndim != 2 or matrix.size == 0:
        raise ValueError(f"must be a matrix with at least one entry, got shape {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise ValueError("every entry of the matrix must be finite")
    return matrix


def _scale(game: FloatArray) -> float:
    return float(np.abs(game).max()) or 1.0


def _distribution(values: FloatArray) -> FloatArray:
    return normalized(np.maximum(values, 0.0))


def _relative_interior(game: FloatArray) -> tuple[FloatArray, npt.NDArray[np.bool_]] | None:
    """Find an equilibrium in which every player has mass that has mass in some equilibrium.

    By strict complementarity every player either has mass in some equilibrium or loses to some
    equilibrium, and one equilibrium has both properties for all players. Without the normalization
    of p a linear program with optimum N finds it: maximize the sum of z + w subject to p >= z,
    A p + w <= 0 and z, w in [0, 1].

    Returns:
        Probabilities [N], and whether each player has mass [N]. None if the solver fails.
    """
    from scipy.optimize import linprog

    size = len(game)
    # The variables are z, w and r = p - z.
    solution = linprog(
        np.concatenate([-np.ones(2 * size), np.zeros(size)]),
        A_ub=np.hstack([game, np.eye(size), game]),
        b_ub=np.zeros(size),
        bounds=[(0.0, 1.0)] * (2 * size) + [(0.0, None)] * size,
        method="highs",
    )
    if solution.status != 0 or solution.x is None:
        return None
    z, w, r = solution.x.reshape(3, size)
    # One of z_i and w_i is 1 at the optimum and the other 0, up to the solver's tolerance.
    has_mass = z > w
    mass = np.where(has_mass, z + r, 0.0)
    return normalized(mass), has_mass


def _max_entropy(start: FloatArray, *, directions: FloatArray, outside: FloatArray) -> FloatArray:
    """Maximize entropy over ``start + directions @ y`` as far as ``outside @ p <= 0`` allows.

    Args:
        start: Positive probabilities, with ``outside @ start < 0``. Shape [S].
        directions: Orthonormal columns. Shape [S, D]; D may be 0.
        outside: Payoffs of the players without mass. Shape [T, S]; T may be 0.

    Returns:
        Probabilities [S].
    """
    if directions.shape[1] == 0:
        return start
    bounds = outside @ directions
    slack = -outside @ start
    # A player whose payoff is the same in all directions is no constraint, so it is left out.
    is_felt = np.abs(bounds).max(axis=1) > RANK_TOLERANCE
    bounds, slack = bounds[is_felt], slack[is_felt]
    p, multipliers = start.copy(), np.full(len(slack), 1.0)
    for _ in range(MAX_NEWTON_STEPS):
        # The primal-dual interior-point method maximizes -sum p log p with slack_i multiplier_i =
        # target, while the target goes to 0.
        gap = float(slack @ multipliers)
        target = 0.1 * gap / max(len(slack), 1)
        # The Hessian is root.T @ root. Its factor is computed from root itself, which keeps twice
        # the digits; near active constraints these are needed.
        root = np.vstack(
            [directions / np.sqrt(p)[:, None], bounds * np.sqrt(multipliers / slack)[:, None]]
        )
        factor: FloatArray = np.asarray(np.linalg.qr(root, mode="r"), dtype=np.float64)
        # This is the gradient of sum p log p along the directions, whose entries sum to 0, plus
        # that of the barrier.
        pull = directions.T @ np.log(p) + bounds.T @ (target / slack)
        step = -np.linalg.solve(factor, np.linalg.solve(factor.T, pull))
        change, slack_change = directions @ step, -bounds @ step
        # The change follows from slack_i multiplier_i = target, to first order.
        multiplier_change = (target - multipliers * slack_change) / slack - multipliers
        length = _step_length((p, slack, multipliers), (change, slack_change, multiplier_change))
        before = _residual(p, slack, multipliers, directions, bounds, target)
        # The line search halves the step until the norm of the residual is small enough.
        for _ in range(MAX_HALVINGS):
            candidate = (
                p + length * change,
                slack + length * slack_change,
                multipliers + length * multiplier_change,
            )
            if _residual(*candidate, directions, bounds, target) <= (1 - 0.01 * length) * before:
                break
            length *= 0.5
        # After all halvings the shortest step is taken, because it is certainly feasible.
        p, slack, multipliers = candidate
        if gap <= SETTLED_GAP and np.abs(change).max() <= SETTLED_STEP:
            break
    return p


def _step_length(values: tuple[FloatArray, ...], changes: tuple[FloatArray, ...]) -> float:
    """Return the longest step, at most 1, after which every value is at least 1% of its old one."""
    length = 1.0
    for value, change in zip(values, changes, strict=True):
        falls = change < 0.0
        if falls.any():
            length = min(length, 0.99 * float((-value[falls] / change[falls]).min()))
    return length


def _residual(
    p: FloatArray,
    slack: FloatArray,
    multipliers: FloatArray,
    directions: FloatArray,
    bounds: FloatArray,
    target: float,
) -> float:
    stationarity = directions.T @ np.log(p) + bounds.T @ multipliers
    return float(
        np.hypot(np.linalg.norm(stationarity), np.linalg.norm(multipliers * slack - target))
    )
