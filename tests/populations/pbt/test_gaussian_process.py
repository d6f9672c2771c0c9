"""The Gaussian process against its textbook formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from populations.candidates import FloatArray
from populations.pbt.gaussian_process import (
    EPSILONS,
    LENGTHSCALES,
    NOISES,
    Kernel,
    Posterior,
    fit_kernel,
)


def k(kernel: Kernel, x: FloatArray, t: float, other_x: FloatArray, other_t: float) -> float:
    """The kernel of the paper, number by number."""
    square = sum((a - b) ** 2 for a, b in zip(x, other_x, strict=True))
    near = math.exp(-square / (2 * kernel.lengthscale**2))
    return float(kernel.variance * near * (1 - kernel.epsilon) ** (abs(t - other_t) / 2))


def test_the_posterior_is_that_of_the_textbook() -> None:
    rng = np.random.default_rng(0)
    x, t, y = rng.random((7, 3)), rng.random(7) * 5, rng.normal(size=7)
    asked_x, asked_t = rng.random((4, 3)), rng.random(4) * 9
    kernel = Kernel(lengthscale=0.4, noise=0.2, epsilon=0.1, variance=1.7)
    noise = rng.uniform(0.5, 3.0, 7)
    posterior = Posterior.of(kernel, x, t, y, noise=noise)
    gram = np.array([[k(kernel, x[i], t[i], x[j], t[j]) for j in range(7)] for i in range(7)])
    inverse = np.linalg.inv(gram + 0.2 * 1.7 * np.diag(noise))
    for m in range(4):
        cross = np.array([k(kernel, asked_x[m], asked_t[m], x[i], t[i]) for i in range(7)])
        assert posterior.mean(asked_x, asked_t)[m] == pytest.approx(cross @ inverse @ y)
        assert posterior.variance(asked_x, asked_t)[m] == pytest.approx(
            1.7 - cross @ inverse @ cross
        )


def test_the_chosen_kernel_has_the_highest_evidence() -> None:
    """By brute force: log N(y; 0, K) and a prior of two rows that s^2 is 1."""
    rng = np.random.default_rng(1)
    x, t = rng.random((12, 2)), np.arange(12.0)
    y = np.sin(3.0 * x[:, 0]) + rng.normal(0.0, 0.3, 12)
    y = (y - y.mean()) / y.std()
    noise = rng.uniform(0.5, 3.0, 12)

    def log_density(kernel: Kernel) -> float:
        gram = kernel.variance * (kernel.correlations(x, t, x, t) + kernel.noise * np.diag(noise))
        likelihood = float(multivariate_normal.logpdf(y, np.zeros(12), gram))
        return likelihood - math.log(kernel.variance) - 1.0 / kernel.variance

    found = fit_kernel(x, t, y, noise=noise)
    densities = [
        log_density(Kernel(lengthscale=lengthscale, noise=noise, epsilon=epsilon, variance=s2))
        for lengthscale in LENGTHSCALES
        for noise in NOISES
        for epsilon in EPSILONS
        for s2 in (0.5 * found.variance, 0.9 * found.variance, 1.0, 1.1 * found.variance, 4.0)
    ]
    assert log_density(found) >= max(densities)


def test_what_moves_is_forgotten_and_what_stays_is_not() -> None:
    x, t = np.random.default_rng(1).random((40, 1)), np.arange(40.0)
    moving, still = np.sin(3.0 * x[:, 0] + t / 3.0), np.sin(3.0 * x[:, 0])
    moving, still = ((y - y.mean()) / y.std() for y in (moving, still))
    little = np.full(40, 0.1)
    assert fit_kernel(x, t, moving, noise=little).epsilon >= 0.1
    assert fit_kernel(x, t, still, noise=little).epsilon == 0.0
