from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.types import Hyperparameters
from populations.choices import number_of
from populations.core import Explore, SearchSpace
from populations.pbt.explore import Perturb, PerturbSettings
from populations.pbt.model_based import ModelBased, SamplerKind
from populations.records.rows import GenerationRow
from populations.search_space import Range, parse_search_space
from tests.populations.pbt.histories import generation

KINDS: tuple[SamplerKind, ...] = ("tpe", "gp", "cma_es", "random")
SPACE: SearchSpace = {
    "learning_rate": {"low": 1e-5, "high": 3e-3, "log": True},
    "gamma": {"low": 0.9, "high": 0.9999, "complement": True, "log": True},
    "num_epochs": {"low": 1, "high": 10},
    "clip_coef": {"low": 0.1, "high": 0.35, "step": 0.1},
    "max_grad_norm": {"choices": [0.1, 0.5, 2.0]},
    "value_coef": {"low": 0.5, "high": 0.5},
}
START = {
    "learning_rate": 3e-4,
    "gamma": 0.99,
    "num_epochs": 4,
    "clip_coef": 0.2,
    "max_grad_norm": 0.5,
    "value_coef": 0.5,
    "entropy_coef": 0.01,
}
DIMENSIONS = parse_search_space(SPACE, start=START)
PLANE: SearchSpace = {name: {"low": 0.0, "high": 1.0} for name in ("a", "b")}


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Optuna's Gaussian process has tiny matrices: torch's threads would wait for each other."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


def make(kind: SamplerKind) -> ModelBased:
    return ModelBased(sampler=kind, fallback=PerturbSettings())


def gain(hyperparameters: Hyperparameters) -> float:
    """Best at (0.7, 0.3), where it is 100."""
    return 100.0 - 400.0 * sum(
        (number_of(hyperparameters[name]) - best) ** 2 for name, best in (("a", 0.7), ("b", 0.3))
    )


def random_history(num: int, *, seed: int, space: SearchSpace = SPACE) -> list[GenerationRow]:
    rng = np.random.default_rng(seed)
    dimensions = parse_search_space(space, start=START)
    history = []
    for i in range(num):
        drawn = {name: dimension.sample(rng) for name, dimension in dimensions.items()}
        rate = float(rng.normal(0.0, 50.0)) if space is SPACE else gain(drawn)
        history.append(generation(drawn, rate=rate, index=i % 4, number=i // 4, begin=i * 1000))
    return history


def assert_valid(new: Hyperparameters) -> None:
    for name, dimension in DIMENSIONS.items():
        value = new[name]
        assert type(value) is type(START[name]), name
        assert dimension.fit(value) == value, name
        if isinstance(dimension, Range):
            assert dimension.low <= value <= dimension.high
    assert new["entropy_coef"] == START["entropy_coef"]


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=2)
@given(seed=st.integers(0, 2**32), num=st.integers(10, 12), num_running=st.integers(0, 2))
@pytest.mark.slow
def test_it_stays_inside_bounds_for_ever(
    kind: SamplerKind, seed: int, num: int, num_running: int
) -> None:
    history = random_history(num, seed=seed)
    current: Hyperparameters = START
    for i in range(2):
        for index in range(num_running):
            history.append(generation(current, rate=None, index=index, number=90 + i))
        exploration = make(kind).explore(
            current, SPACE, history=history, rng=np.random.default_rng(seed + i)
        )
        assert_valid(exploration.new)
        assert exploration.moves.keys() == SPACE.keys()
        assert exploration.moves["value_coef"] == "kept"
        assert {*exploration.moves.values()} <= {kind, "kept"}
        current = exploration.new
        history.append(generation(current, rate=1.0, number=50 + i))


def average_gain(explore: Explore, *, num_seeds: int, num_asked: int) -> float:
    """Mean gain of the last half of policies that ask one after the other, after 10 random ones."""
    gains = []
    for seed in range(num_seeds):
        rng = np.random.default_rng(seed)
        history = random_history(10, seed=seed, space=PLANE)
        for i in range(num_asked):
            new = explore.explore({"a": 0.0, "b": 0.0}, PLANE, history=history, rng=rng).new
            history.append(generation(new, rate=gain(new), number=10 + i))
            gains += [gain(new)] if 2 * i >= num_asked else []
    return float(np.mean(gains))


@pytest.mark.parametrize(
    ("kind", "num_seeds", "num_asked"), [("tpe", 2, 32), ("gp", 1, 6), ("cma_es", 2, 32)]
)
@pytest.mark.slow
def test_samplers_learn_where_random_search_does_not(
    kind: SamplerKind, num_seeds: int, num_asked: int
) -> None:
    # For uniform draws E(a - 0.7)^2 = 1/12 + 0.04: 100 - 800 (0.12333) = 1.3.
    chance = average_gain(make("random"), num_seeds=4, num_asked=40)
    assert chance == pytest.approx(1.3, abs=40.0)  # standard deviation about 8
    assert average_gain(make(kind), num_seeds=num_seeds, num_asked=num_asked) > chance + 40.0


def test_pending_generations_make_policies_spread() -> None:
    history = random_history(12, seed=0, space=PLANE)
    asked: list[Hyperparameters] = []
    for index in range(2):
        rng = np.random.default_rng(0)
        new = make("gp").explore({"a": 0.0, "b": 0.0}, PLANE, history=history, rng=rng).new
        asked.append(new)
        history.append(generation(new, rate=None, index=10 + index))
    places = [tuple(map(number_of, one.values())) for one in asked[:2]]
    assert math.dist(*places) > 0.01


@pytest.mark.parametrize("kind", ["tpe", "gp", "cma_es"])
def test_too_few_generations_perturb_and_say_so(kind: SamplerKind) -> None:
    history = random_history(9, seed=0)
    rng = np.random.default_rng(5)
    exploration = make(kind).explore(START, SPACE, history=history, rng=rng)
    perturbed = Perturb().explore(START, SPACE, rng=np.random.default_rng(5))
    assert exploration.new == perturbed.new
    assert exploration.moves["gamma"] == (
        f"{perturbed.moves['gamma']}; {kind} has 9 of 10 generations"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_generations_that_say_nothing_are_left_out(kind: SamplerKind) -> None:
    useless = [
        generation(START, rate=math.nan),
        generation(START, rate=1.0, num_steps=0),
        generation({"gamma": 0.99}, rate=1.0),
        generation({**START, "gamma": math.nan}, rate=1.0),
    ]
    # Start values may be outside the bounds or not among the choices.
    outside = [
        generation({**START, "learning_rate": 1.0, "max_grad_norm": 0.7, "gamma": 0.5}, rate=3.0)
        for _ in range(10)
    ]
    few = make(kind).explore(START, SPACE, history=useless * 5, rng=np.random.default_rng(0))
    many = make(kind).explore(
        START, SPACE, history=[*useless, *outside], rng=np.random.default_rng(0)
    )
    assert_valid(few.new)
    assert_valid(many.new)
    assert (kind == "random") == (few.moves["learning_rate"] == "random")
    assert many.moves["learning_rate"] == kind


def test_one_dimension_and_none() -> None:
    line: SearchSpace = {"a": {"low": 0.0, "high": 1.0}}
    history = random_history(12, seed=0, space=PLANE)
    for kind in KINDS:
        new = make(kind).explore(START, line, history=history, rng=np.random.default_rng(0)).new
        assert 0.0 <= number_of(new["a"]) <= 1.0
        nothing = make(kind).explore(START, {}, history=history, rng=np.random.default_rng(0))
        assert nothing.new == START
