"""Gaussian process whose function changes with time, for few and noisy data.

Sources: Bogunovic et al., "Time-varying Gaussian process bandit optimization" (2016), for the
kernel; Rasmussen and Williams, "Gaussian processes for machine learning" (2006), equations 2.25,
2.26 (posterior) and 5.8 (evidence).

    k((x, t), (x', t')) = s^2 exp(-|x - x'|^2 / (2 l^2)) (1 - eps)^(|t - t'| / 2)

Shapes: N rows of data, M points of a query, D dimensions of x.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

LENGTHSCALES = (0.3, 0.1, 0.2, 0.5, 1.0)
"""Grid of length scales l in the unit cube, where above 1 all points are alike. Of equally probable
ones the first is taken, here and below."""

NOISES = (1.0, 0.3, 3.0, 10.0)
"""Grid of factors on the rows' noise, whose size relative to the signal is only an estimate."""

EPSILONS = (0.1, 0.0, 0.03, 0.3)
"""Grid of eps, the share of correlation that is lost per two units of time."""

MAX_FIT_ROWS = 200
"""Maximum number of newest rows that the kernel is fitted to: time grows with its third power."""

MIN_NOISE = 0.01
"""Minimum variance of a row's noise, as a share of the signal's variance: no rate is exact."""

PRIOR_WEIGHT = 2.0
"""Weight, in rows, of the prior that s^2 is 1, without which constant data would make s 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """Parameters of the kernel in the module's docstring: l, eps and s^2, and the noise.

    ``noise`` multiplies the variances of the rows' noise, which are in units of s^2.
    """

    lengthscale: float
    noise: float
    epsilon: float
    variance: float = 1.0

    def correlations(
        self, x: FloatArray, t: FloatArray, other_x: FloatArray, other_t: FloatArray
    ) -> FloatArray:
        """Return the kernel divided by s^2, without noise. Shape [N, M].

        Args:
            x: Shape [N, D].
            t: Shape [N].
            other_x: Shape [M, D].
            other_t: Shape [M].
        """
        # |a - b|^2 = |a|^2 + |b|^2 - 2 a b, which may be slightly below 0 by rounding.
        squares = np.sum(x**2, axis=1)[:, None] + np.sum(other_x**2, axis=1)[None, :]
        distances = np.maximum(squares - 2.0 * (x @ other_x.T), 0.0)
        ages = np.abs(t[:, None] - other_t[None, :])
        similar = np.exp(-distances / (2.0 * self.lengthscale**2))
        return np.asarray(similar * (1.0 - self.epsilon) ** (ages / 2.0), dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior:
    """Gaussian process conditioned on data.

    Attributes:
        kernel: Kernel of the prior.
        x: Points of the data. Shape [N, D].
        t: Times of the data. Shape [N].
        whitener: Inverse of the lower Cholesky factor of correlations plus noise; the explicit
            inverse makes many small products fast. Shape [N, N].
        weights: (correlations + noise)^-1 y. Shape [N].
    """

    kernel: Kernel
    x: FloatArray
    t: FloatArray
    whitener: FloatArray
    weights: FloatArray

    @classmethod
    def of(
        cls, kernel: Kernel, x: FloatArray, t: FloatArray, y: FloatArray, *, noise: FloatArray
    ) -> Posterior:
        """Condition a process with mean 0 on ``y`` (shape [N]) at ``x`` and ``t``; N is 1 or more.

        Args:
            kernel: Kernel of the prior.
            x: Points of the data. Shape [N, D].
            t: Times of the data. Shape [N].
            y: Values of the data. Shape [N].
            noise: Variance of each row's noise, above 0. Shape [N].

        Raises:
            ValueError: If a number is not finite.
        """
        from scipy.linalg import solve_triangular

        if not (np.isfinite(x).all() and np.isfinite(t).all() and np.isfinite(y).all()):
            raise ValueError("data must be finite")
        # Covariances are in units of s^2, which cancels in the mean; `variance` multiplies by s^2.
        noisy = kernel.correlations(x, t, x, t) + kernel.noise * np.diag(noise)
        whitener = np.asarray(
            # The noise is above 0, so the factor exists even where rows are equal.
            solve_triangular(np.linalg.cholesky(noisy), np.eye(len(y)), lower=True),
            dtype=np.float64,
        )
        return cls(kernel=kernel, x=x, t=t, whitener=whitener, weights=whitener.T @ (whitener @ y))

    def mean(self, x: FloatArray, t: FloatArray) -> FloatArray:
        """Return the mean of the function. Shape [M] for x [M, D] and t [M]."""
        return self.kernel.correlations(x, t, self.x, self.t) @ self.weights

    def variance(self, x: FloatArray, t: FloatArray) -> FloatArray:
        """Return the variance of the function, without noise. Shape [M], at least 0."""
        # var = s^2 (1 - |L^-1 k|^2), equation 2.26
        whitened = self.whitener @ self.kernel.correlations(self.x, self.t, x, t)
        explained = np.sum(whitened**2, axis=0)
        return np.asarray(self.kernel.variance * np.maximum(1.0 - explained, 0.0), dtype=np.float64)


def fit_kernel(x: FloatArray, t: FloatArray, y: FloatArray, *, noise: FloatArray) -> Kernel:
    """Return the most probable kernel on a grid, from the newest rows.

    With a dozen noisy rows the evidence is flat, and a gradient method could run off to absurd
    lengths and noises, which a grid cannot.

    Args:
        x: Shape [N, D], N >= 1, in the unit cube.
        t: Shape [N].
        y: Standardized values. Shape [N].
        noise: Variance of each row's noise, above 0. Shape [N].
    """
    x, t, noise = x[-MAX_FIT_ROWS:], t[-MAX_FIT_ROWS:], noise[-MAX_FIT_ROWS:]
    # In units of its own noise each row has noise 1, so the noise matrix is the identity.
    scale = 1.0 / np.sqrt(noise)
    y = scale * y[-MAX_FIT_ROWS:]
    # Only better evidence replaces the best kernel, so the first of equals stays.
    best_evidence, best = -math.inf, Kernel(lengthscale=1.0, noise=1.0, epsilon=0.0)
    for lengthscale, epsilon in itertools.product(LENGTHSCALES, EPSILONS):
        kernel = Kernel(lengthscale=lengthscale, noise=0.0, epsilon=epsilon)
        # Adding noise leaves the eigenvectors unchanged, so one decomposition serves all noises.
        correlations = scale[:, None] * kernel.correlations(x, t, x, t) * scale
        eigenvalues, eigenvectors = np.linalg.eigh(correlations)
        squares = (eigenvectors.T @ y) ** 2
        for multiple in NOISES:
            # By rounding, a singular matrix may have eigenvalues below 0.
            noisy = np.maximum(eigenvalues, 0.0) + multiple
            evidence, variance = _evidence(noisy, squares)
            if evidence > best_evidence:
                best_evidence = evidence
                best = replace(kernel, noise=multiple, variance=variance)
    return best


def _evidence(eigenvalues: FloatArray, squares: FloatArray) -> tuple[float, float]:
    """Return the log evidence, up to a constant, at the best s^2, and the best s^2.

    Args:
        eigenvalues: Eigenvalues of correlations plus noise. Shape [N].
        squares: Squares of y along the eigenvectors. Shape [N].
    """
    num_rows = len(squares) + PRIOR_WEIGHT
    # The evidence is highest at s^2 = (y^T K^-1 y + prior) / n.
    variance = (float(np.sum(squares / eigenvalues)) + PRIOR_WEIGHT) / num_rows
    # log p(y) = -(n log s^2 + log |K|) / 2 + const, for at the best s^2 the quadratic term is
    # constant.
    return -0.5 * (num_rows * math.log(variance) + float(np.sum(np.log(eigenvalues)))), variance
