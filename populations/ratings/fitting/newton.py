"""The mode of a `Problem` and the posterior around it: exact, or by sparse matrices.

Few parameters: the negated Hessian H as a dense matrix, its Cholesky factor, and a spread S with S
@ S.T = inverse(H) exactly. Many: H as a sparse matrix, preconditioned conjugate gradients for the
steps, and S from K posterior samples by perturbation. With H = J.T @ J and independent signs e, the
solution x of H x = J.T @ e has mean 0 and covariance inverse(H), so the columns of S are K
solutions over sqrt(K). A deviation read from S has a relative error of 1 / sqrt(2 K); the
uncertainty common to all parameters is exact.

Sources: Papandreou and Yuille, "Gaussian sampling by local perturbations" (NeurIPS, 2010);
Hutchinson, "A stochastic estimator of the trace of the influence matrix" (Communications in
Statistics, 1989), for signs instead of normal variables; Nicolaides, "Deflation of conjugate
gradients with applications to boundary value problems" (SIAM Journal on Numerical Analysis, 1987),
for groups in the preconditioner; Nocedal and Wright, "Numerical optimization" (2006), section 7.1,
for Newton's method with unfinished steps.

Shapes: P parameters; T terms; K samples.

Tests: `tests/populations/ratings/test_bradley_terry.py`.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from populations.ratings.fitting.posterior import FloatArray, Problem, evaluate

MAX_EXACT = 1_500
"""Number of parameters up to which matrices are dense: 18 MB each."""

NUM_SAMPLES = 128

ROUGH_SAMPLES = 16
"""Samples for variances of which only sums are used."""

MAX_STEPS = 200
MAX_HALVINGS = 60

NEARLY_SETTLED = 1e-9
"""Gain in log-likelihood below which rounding hides whether a step was uphill, so no line search.
"""

SETTLED = 1e-18
"""Gain in log density below which a step is the last one."""


class Solver(Protocol):
    """Linear systems with the curvature of one problem."""

    def update(self, weights: FloatArray) -> None:
        """Move to the curvature at another point: the weights of the terms [T]."""

    def solve(self, right: FloatArray, *, tolerance: float) -> FloatArray:
        """Solve H x = right for x [P]; ``tolerance`` is relative and concerns iterative solvers."""

    def spread(self) -> FloatArray:
        """Return S with S @ S.T = inverse(H), exact or sampled. float64 [P, K]."""

    def variances(self) -> FloatArray:
        """Return (estimated) variances of the terms' signed sums of parameters. float64 [T]."""


def make_solver(problem: Problem, *, max_exact: int = MAX_EXACT) -> Solver:
    """Make the exact solver up to ``max_exact`` parameters, else the sparse one."""
    if problem.num_parameters <= max_exact:
        return ExactSolver(problem)
    return SparseSolver(problem)


def maximize(
    problem: Problem, solver: Solver, *, start: FloatArray | None = None, settled: float = SETTLED
) -> FloatArray:
    """Maximize the log density by Newton's method with a line search.

    The solver is left with the curvature at the last point.

    Args:
        problem: Problem whose log density is strictly concave, because every parameter has a prior.
        solver: Solver of this problem, or of one with the same terms.
        start: Parameters near the mode, if known [P].
        settled: Gain in log density below which a step is the last one.

    Returns:
        Parameters [P].
    """
    parameters = np.zeros(problem.num_parameters) if start is None else start
    value, gradient, curvature = evaluate(problem, parameters)
    tolerance = 1e-2
    for _ in range(MAX_STEPS):
        solver.update(curvature)
        step = solver.solve(gradient, tolerance=tolerance)
        # The Newton decrement g^T H^-1 g is twice the gain that a full step promises.
        decrement = float(gradient @ step)
        if decrement < settled:
            parameters = parameters + step
            break
        # Far from the mode a rough step is as good; near it the tolerance shrinks with the
        # decrement, so that convergence stays superlinear.
        tolerance = min(1e-2, max(1e-10, 1e-4 * decrement))
        for halvings in range(MAX_HALVINGS):
            scale = 0.5**halvings
            proposal = parameters + scale * step
            proposed = evaluate(problem, proposal)
            if decrement < NEARLY_SETTLED:
                break
            # Armijo's condition of sufficient increase.
            if proposed[0] >= value + 1e-4 * scale * decrement:
                break
        parameters = proposal
        value, gradient, curvature = proposed
    return parameters


class ExactSolver:
    """Solver with H as a dense matrix."""

    def __init__(self, problem: Problem) -> None:
        width, signs = problem.num_parameters + 1, problem.signs
        self._size = problem.num_parameters
        # The padded last row and column collect the constant 0 and are cut off afterwards.
        self._cells = problem.index[:, :, None] * width + problem.index[:, None, :]
        self._products = signs[:, :, None] * signs[:, None, :]
        self._factor = np.zeros((0, 0))

    def update(self, weights: FloatArray) -> None:
        """Move to the curvature at another point."""
        from scipy.linalg import lapack

        size = self._size
        # H = sum over terms of weight * signs signs^T, added up by cell.
        values = self._products * weights[:, None, None]
        cells = np.bincount(self._cells.ravel(), values.ravel(), minlength=(size + 1) ** 2)
        hessian = cells.reshape(size + 1, size + 1)[:size, :size].copy()
        # LAPACK is called directly: for small matrices this is 20 times as fast as the wrappers.
        # clean=1 zeroes the upper triangle, as `spread` needs it.
        self._factor, info = lapack.dpotrf(hessian, lower=1, clean=1)
        if info != 0:
            raise np.linalg.LinAlgError(f"the Hessian is not positive definite: dpotrf gave {info}")

    def solve(self, right: FloatArray, *, tolerance: float) -> FloatArray:
        """Solve H x = right for x [P], to rounding."""
        from scipy.linalg import lapack

        if not self._size:  # LAPACK refuses empty matrices
            return right
        solution, _ = lapack.dpotrs(self._factor, right, lower=1)
        return np.asarray(solution, dtype=np.float64)

    def variances(self) -> FloatArray:
        """Read the variances from inverse(H), exactly. float64 [T]."""
        from scipy.linalg import lapack

        size = self._size
        covariance = np.zeros((size + 1, size + 1))  # fixed parameters have no variance
        if size:
            lower, _ = lapack.dpotri(self._factor, lower=1)
            covariance[:size, :size] = np.tril(lower) + np.tril(lower, -1).T
        # Var(sum_i s_i x_i) = sum_ij s_i s_j C_ij
        return np.asarray((self._products * covariance.ravel()[self._cells]).sum(axis=(1, 2)))

    def spread(self) -> FloatArray:
        """Return S = inverse(L).T for H = L @ L.T. float64 [P, P]."""
        from scipy.linalg import lapack

        if not self._size:
            return np.zeros((0, 0))
        # inverse(H) = inverse(L).T @ inverse(L)
        inverse, _ = lapack.dtrtri(self._factor, lower=1)
        return np.asarray(inverse.T, dtype=np.float64)


class SparseSolver:
    """Solver with H as a sparse matrix, by preconditioned conjugate gradients."""

    BLOCK = 32
    """Samples solved for together: as many columns as stay in the processor's cache."""

    SAMPLE_TOLERANCE = 1e-3
    """Relative tolerance of a sample's solution, well below the sampling error of K samples."""

    MAX_ITERATIONS = 2_000
    """Most iterations of one solve. A step cut off there still goes uphill, and others follow."""

    def __init__(self, problem: Problem) -> None:
        from scipy import sparse

        is_used = (problem.index < problem.num_parameters) & (problem.signs != 0.0)
        self._signs = problem.signs[is_used]
        self._term = np.nonzero(is_used)[0]
        self._players = problem.index[: len(problem.matches), :2]
        ends = np.r_[0, is_used.sum(axis=1).cumsum()]
        self._sums = sparse.csr_array(
            (
                self._signs,
                problem.index[is_used].astype(np.int32),
                ends.astype(np.int32),
            ),
            shape=(len(problem.index), problem.num_parameters),
        )
        self._jacobian = self._sums.copy()
        members = np.flatnonzero(problem.groups >= 0)
        self._groups = sparse.csr_array(
            (np.ones(len(members)), (members, problem.groups[members])),
            shape=(problem.num_parameters, 1 + int(problem.groups.max(initial=-1))),
        )

    def update(self, weights: FloatArray) -> None:
        """Move to the curvature at another point."""
        # J = diag(sqrt(weights)) @ signs, so that H = J.T @ J.
        self._jacobian.data[:] = self._signs * np.sqrt(weights)[self._term]
        known = np.repeat(weights[: len(self._players)], 2)
        size = self._jacobian.shape[1]
        self._known = np.bincount(self._players.ravel(), known, minlength=size + 1)[:size]
        self._transposed = self._jacobian.T.tocsr()
        self._hessian = self._transposed @ self._jacobian
        self._diagonal = np.asarray(self._hessian.diagonal(), dtype=np.float64)
        together = (self._groups.T @ (self._hessian @ self._groups)).toarray()
        self._together = np.linalg.inv(together)

    def solve(self, right: FloatArray, *, tolerance: float) -> FloatArray:
        """Solve H x = right for x [P]."""
        return self._conjugate_gradients(self._hessian, right[:, None], tolerance=tolerance)[:, 0]

    def variances(self) -> FloatArray:
        """Estimate the variances from few samples: sums over many terms average the errors. float64
        [T].
        """
        # A sum's variance is the squared length of its row: the columns hold 1 / sqrt(K) already.
        sums = self._sums @ self._samples(ROUGH_SAMPLES)
        return np.asarray((sums**2).sum(axis=1))

    def spread(self) -> FloatArray:
        """Return a spread made of samples. float64 [P, K]."""
        return self._samples(NUM_SAMPLES)

    def _samples(self, num_samples: int) -> FloatArray:
        # float32 halves the memory traffic; sampling errors are far above its rounding.
        hessian, transposed = self._hessian.astype(np.float32), self._transposed.astype(np.float32)
        # A fixed seed: the same results give the same bits, also when a resumed run fits again.
        rng = np.random.default_rng(0)
        blocks = []
        for start in range(0, num_samples, self.BLOCK):
            width = min(self.BLOCK, num_samples - start)
            signs = _signs((self._jacobian.shape[0], width), rng=rng)
            samples = self._conjugate_gradients(
                hessian, transposed @ signs, tolerance=self.SAMPLE_TOLERANCE
            )
            blocks.append(samples / np.sqrt(num_samples))
        return self._with_exact_means(np.asarray(np.concatenate(blocks, axis=1), np.float64))

    def _with_exact_means(self, spread: FloatArray) -> FloatArray:
        """Give two weighted means of the parameters their exact covariance, and change nothing
        else.

        The uncertainty common to all parameters is most of a deviation in a long league, and a
        sampling error there is shared by all. The means are the plain one and that by matches
        played. For x with covariance inverse(H), U.T x and x - C U.T x are independent, with C =
        inverse(H) U inverse(U.T inverse(H) U).
        """
        size = len(spread)
        total = float(self._known.sum())
        means = np.full((size, 2), 1.0 / size)
        if total > 0.0:
            means[:, 1] = self._known / total
        with_means = self._conjugate_gradients(self._hessian, means, tolerance=1e-6)
        exact, sampled = means.T @ with_means, means.T @ spread
        found = sampled @ sampled.T
        # The two means are one without matches, and there is nothing to correct in the second.
        if np.linalg.cond(exact) > 1e10 or np.linalg.cond(found) > 1e10:
            return spread
        # scale @ found @ scale.T = exact: sampled means get their exact covariance.
        scale = np.linalg.cholesky(exact) @ np.linalg.inv(np.linalg.cholesky(found))
        # C (scale - I) U.T S with C = inverse(H) U inverse(exact)
        change = np.linalg.solve(exact, (scale - np.eye(2)) @ sampled)
        return np.asarray(spread + with_means @ change)

    def _conjugate_gradients(
        self, hessian: npt.NDArray[np.floating], right: FloatArray, *, tolerance: float
    ) -> FloatArray:
        """Solve for every column of ``right`` [P, C], each with its own step lengths.

        The preconditioner is the diagonal plus an exact solution for groups that move as one.
        Without it, errors in the level of a whole group would travel along a long line one step an
        iteration.
        """
        inverse = (1.0 / self._diagonal).astype(right.dtype)[:, None]
        groups = self._groups.astype(right.dtype)
        gathered, together = groups.T.tocsr(), self._together.astype(right.dtype)

        def precondition(residual: FloatArray) -> FloatArray:
            return np.asarray(inverse * residual + groups @ (together @ (gathered @ residual)))

        x = np.zeros_like(right)
        residual = right.copy()
        z = precondition(residual)
        direction = z.copy()
        norm = np.einsum("pc,pc->c", residual, z)
        goal = tolerance**2 * norm
        for _ in range(self.MAX_ITERATIONS):
            if (norm <= goal).all():
                break
            image = hessian @ direction
            curvature = np.einsum("pc,pc->c", direction, image)
            # A column that is solved has direction 0 and waits for the others.
            length = np.divide(norm, curvature, out=np.zeros_like(norm), where=curvature > 0.0)
            x += length * direction
            residual -= length * image
            z = precondition(residual)
            new = np.einsum("pc,pc->c", residual, z)
            direction *= np.divide(new, norm, out=np.zeros_like(norm), where=norm > 0.0)
            direction += z
            norm = new
        return x


def _signs(shape: tuple[int, int], *, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Draw -1 and 1, equally likely. float32."""
    # One random byte gives eight signs through a table: much faster than a draw per sign.
    size = shape[0] * shape[1]
    of_byte = np.unpackbits(np.arange(256, dtype=np.uint8)).reshape(256, 8) * np.float32(2.0) - 1
    signs = of_byte[rng.integers(0, 256, size=(size + 7) // 8, dtype=np.uint8)]
    return signs.ravel()[:size].reshape(shape)
