from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from arena.types import Hyperparameters
from populations.candidates import FloatArray
from populations.choices import is_known, number_of
from populations.core import Explore, SearchSpace
from populations.pbt.explore import Perturb, PerturbSettings, Resample
from populations.pbt.gaussian_process import (
    EPSILONS,
    LENGTHSCALES,
    NOISES,
    Kernel,
    Posterior,
    fit_kernel,
)
from populations.pbt.pb2 import Pb2
from populations.records.rows import GenerationRow
from populations.search_space import Choices, Range, parse_search_space
from tests.populations.pbt.histories import generation

RULE = Pb2(fallback=PerturbSettings())
LINE: SearchSpace = {"a": {"low": 0.0, "high": 1.0}}
SPACE: SearchSpace = {
    "learning_rate": {"low": 1e-5, "high": 3e-3, "log": True},
    "gamma": {"low": 0.9, "high": 0.9999, "complement": True},
    "num_epochs": {"low": 1, "high": 10},
    "clip_coef": {"low": 0.1, "high": 0.35, "step": 0.1},
    "max_grad_norm": {"choices": [0.1, 0.5, 2.0]},
}
START = {
    "learning_rate": 3e-4,
    "gamma": 0.99,
    "num_epochs": 4,
    "clip_coef": 0.2,
    "max_grad_norm": 0.5,
}
DIMENSIONS = parse_search_space(SPACE, start=START)


def drifting_gain(explore: Explore, *, seed: int) -> float:
    """Mean gain, at most 0, while the best value wanders from 0.2 to 0.8 and ratings rise."""
    rng = np.random.default_rng(seed)
    history: list[GenerationRow] = []
    gains = []
    for i in range(40):
        best = 0.2 + 0.6 * i / 39
        new = explore.explore(
            {"a": 0.5}, LINE, history=history, agent_steps=i * 100_000, rng=rng
        ).new
        gains.append(-1000.0 * (number_of(new["a"]) - best) ** 2)
        noisy = gains[-1] + float(rng.normal(0.0, 20.0))
        begin = i * 100_000
        history.append(
            generation(new, rate=noisy, number=i, begin=begin, rating=10.0 * i, deviation=2.0)
        )
    return float(np.mean(gains[8:]))


@pytest.mark.slow
def test_it_follows_a_drifting_optimum_better_than_chance() -> None:
    ours = [drifting_gain(RULE, seed=seed) for seed in range(2)]
    chance = [drifting_gain(Resample(), seed=seed) for seed in range(2)]
    assert np.mean(ours) > 0.5 * np.mean(chance)
    assert all(our > 0.75 * other for our, other in zip(ours, chance, strict=True))


def test_a_rating_beyond_all_data_does_not_hide_what_was_learnt() -> None:
    values = np.linspace(0.0, 1.0, 21)
    history = [
        generation({"a": value}, rate=-((value - 0.6) ** 2), index=i, rating=float(i % 3))
        for i, value in enumerate(values)
    ]
    far = generation({"a": 0.05}, rate=None, index=99, rating=1e5)
    new = RULE.explore({"a": 0.05}, LINE, history=[*history, far], rng=np.random.default_rng(0)).new
    assert new["a"] == pytest.approx(0.6, abs=0.15)


def test_running_generations_are_avoided_but_change_no_mean() -> None:
    rng = np.random.default_rng(0)
    history = [
        generation({"a": float(a)}, rate=-((a - 0.5) ** 2), index=i)
        for i, a in enumerate(rng.random(12))
    ]
    asked: list[float] = []
    for index in range(4):
        new = RULE.explore({"a": 0.0}, LINE, history=history, rng=np.random.default_rng(1)).new
        asked.append(number_of(new["a"]))
        history.append(generation(new, rate=None, index=20 + index))
    assert len({round(value, 3) for value in asked}) == 4
    alone = [
        RULE.explore({"a": 0.0}, LINE, history=history[:12], rng=np.random.default_rng(1)).new["a"]
        for _ in range(2)
    ]
    assert alone == [asked[0]] * 2


def assert_valid(new: Hyperparameters) -> None:
    for name, dimension in DIMENSIONS.items():
        assert type(new[name]) is type(START[name]), name
        assert is_known(new[name])
        assert dimension.fit(new[name]) == new[name], name
        if isinstance(dimension, Range):
            assert dimension.low <= number_of(new[name]) <= dimension.high


RATES = st.one_of(st.just(0.0), st.just(5.0), st.floats(-1e9, 1e9))


@settings(deadline=None, max_examples=10)
@given(
    st.lists(st.tuples(RATES, st.floats(-4e3, 4e3), st.booleans()), min_size=4, max_size=12),
    st.integers(0, 2**32),
    st.integers(0, 10**15),
)
def test_it_stays_inside_bounds_whatever_the_data(
    drawn: list[tuple[float, float, bool]], seed: int, agent_steps: int
) -> None:
    rng = np.random.default_rng(seed)
    history: list[GenerationRow] = []
    current: Hyperparameters = START
    for i, (rate, rating, is_running) in enumerate(drawn):
        shown = None if is_running else rate
        history.append(generation(current, rate=shown, index=i, begin=i, rating=rating))
        exploration = RULE.explore(
            current, SPACE, history=history, agent_steps=agent_steps, rng=rng
        )
        assert_valid(exploration.new)
        assert exploration.moves.keys() == SPACE.keys()
        current = exploration.new


@pytest.mark.parametrize("num", [4, 40])
def test_constant_and_equal_data_give_numbers(num: int) -> None:
    history = [generation(START, rate=7.0, index=i) for i in range(num)]
    exploration = RULE.explore(START, SPACE, history=history, rng=np.random.default_rng(0))
    assert_valid(exploration.new)
    assert "pb2" in exploration.moves.values()
    single = Pb2(fallback=PerturbSettings(), min_generations=1).explore(
        START, SPACE, history=history[:1], rng=np.random.default_rng(0)
    )
    assert_valid(single.new)


def test_too_few_generations_perturb_and_say_so() -> None:
    history = [generation(START, rate=1.0, index=i) for i in range(3)]
    exploration = RULE.explore(START, SPACE, history=history, rng=np.random.default_rng(5))
    perturbed = Perturb().explore(START, SPACE, rng=np.random.default_rng(5))
    assert exploration.new == perturbed.new
    assert exploration.moves["gamma"].endswith("; pb2 has 3 of 4 generations")
    assert RULE.explore(START, {}, history=history * 9, rng=np.random.default_rng(5)).new == START


def test_positions_in_the_unit_cube() -> None:
    rate, gamma = DIMENSIONS["learning_rate"], DIMENSIONS["gamma"]
    assert rate.to_unit(math.sqrt(1e-5 * 3e-3)) == pytest.approx(0.5)  # log: the geometric mean
    assert rate.from_unit(0.5) == pytest.approx(math.sqrt(1e-5 * 3e-3))
    assert gamma.to_unit(0.9999) == pytest.approx(0.0)
    assert gamma.to_unit(0.9) == pytest.approx(1.0)
    assert DIMENSIONS["num_epochs"].from_unit(0.5) in (5, 6)
    norm = DIMENSIONS["max_grad_norm"]
    assert isinstance(norm, Choices)
    assert [norm.to_unit(value) for value in (0.1, 0.5, 2.0, 0.4)] == [0.0, 0.5, 1.0, 0.5]
    assert [norm.from_unit(value) for value in (0.0, 0.4, 1.0)] == [0.1, 0.5, 2.0]
    same = parse_search_space({"a": {"low": 3.0, "high": 3.0}}, start={"a": 3.0})["a"]
    assert (same.to_unit(3.0), same.from_unit(0.7)) == (0.0, 3.0)


@settings(deadline=None)
@given(st.sampled_from(sorted(SPACE)), st.integers(0, 2**32))
def test_a_value_is_found_again_from_its_position(name: str, seed: int) -> None:
    dimension = DIMENSIONS[name]
    value = dimension.sample(np.random.default_rng(seed))
    assert 0.0 <= dimension.to_unit(value) <= 1.0
    assert dimension.from_unit(dimension.to_unit(value)) == pytest.approx(value, rel=1e-9)


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
