from __future__ import annotations

import math
import warnings
from collections.abc import Mapping

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from scipy import stats

from arena.errors import ConfigError
from arena.learning.hyperparameters import PpoHyperparameters, coerce_hyperparameters
from populations.choices import number_of
from populations.core import SearchSpace
from populations.search_space import (
    Choices,
    Range,
    optuna_distributions,
    parse_search_space,
    validate_search_space,
)

START = coerce_hyperparameters(PpoHyperparameters, {})
NAMES = tuple(PpoHyperparameters.model_fields)

SPACE: SearchSpace = {
    "learning_rate": {"low": 1e-5, "high": 3e-3, "log": True},
    "entropy_coef": {"low": 0, "high": 1},
    "gamma": {"low": 0.9, "high": 0.9999, "complement": True, "log": True},
    "gae_lambda": {"low": 0.8, "high": 0.99, "complement": True},
    "clip_coef": {"low": 0.1, "high": 0.35, "step": 0.1},
    "num_epochs": {"low": 1, "high": 10},
    "num_minibatches": {"low": 1, "high": 64, "log": True},
    "rollout_length": {"low": 16, "high": 70, "step": 16},
    "max_grad_norm": {"choices": [0.1, 0.5, 2.0]},
}


def test_what_is_integral_is_decided_by_the_hyperparameter() -> None:
    dimensions = parse_search_space(SPACE, start=START)
    integral = {name for name, dim in dimensions.items() if isinstance(dim, Range) and dim.integral}
    assert integral == {"num_epochs", "num_minibatches", "rollout_length"}
    # 1 as a bound of entropy_coef does not make it a coin.
    rng = np.random.default_rng(0)
    assert 0.0 < number_of(dimensions["entropy_coef"].sample(rng)) < 1.0
    # Where there is no value, the way the bounds are written decides.
    unknown = parse_search_space(
        {"a": {"low": 1, "high": 3}, "b": {"low": 1.0, "high": 3}}, start={}
    )
    assert unknown == {
        "a": Range(low=1, high=3, step=1, integral=True),
        "b": Range(low=1.0, high=3),
    }


def test_bounds_end_where_the_steps_do() -> None:
    dimensions = parse_search_space(SPACE, start=START)
    clip_coef, rollout_length = dimensions["clip_coef"], dimensions["rollout_length"]
    assert isinstance(clip_coef, Range)
    assert isinstance(rollout_length, Range)
    assert clip_coef.high == pytest.approx(0.3)
    assert rollout_length.high == 64
    assert clip_coef.fit(0.26) == pytest.approx(0.3)
    assert clip_coef.fit(9.0) == clip_coef.high


def test_distributions_are_optunas() -> None:
    distributions = optuna_distributions(parse_search_space(SPACE, start=START))
    assert distributions == {
        "learning_rate": FloatDistribution(1e-5, 3e-3, log=True),
        "entropy_coef": FloatDistribution(0.0, 1.0),
        "gamma": FloatDistribution(0.0001, 0.1, log=True),
        "gae_lambda": FloatDistribution(0.01, 0.2),
        "clip_coef": FloatDistribution(0.1, 0.3, step=0.1),
        "num_epochs": IntDistribution(1, 10),
        "num_minibatches": IntDistribution(1, 64, log=True),
        "rollout_length": IntDistribution(16, 64, step=16),
        "max_grad_norm": CategoricalDistribution((0.1, 0.5, 2.0)),
    }


@pytest.mark.parametrize("name", SPACE)
def test_samples_are_distributed_as_optunas(name: str) -> None:
    size = 2000
    dimension = parse_search_space(SPACE, start=START)[name]
    rng = np.random.default_rng(5)
    ours = np.array([dimension.sample(rng) for _ in range(size)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=6))
        distributions = {name: optuna_distributions(parse_search_space(SPACE, start=START))[name]}
        theirs = np.array([study.ask(distributions).params[name] for _ in range(size)])
    if isinstance(dimension, Range) and dimension.complement:
        theirs = 1.0 - theirs
    if isinstance(dimension, Range) and not dimension.integral and dimension.step is None:
        assert stats.ks_2samp(ours, theirs).pvalue > 0.001
    else:
        values = sorted({*ours.round(9), *theirs.round(9)})
        table = [[int(np.sum(np.isclose(drawn, v))) for v in values] for drawn in (ours, theirs)]
        assert stats.chi2_contingency(table).pvalue > 0.001
    if isinstance(dimension, Range):
        assert ours.min() >= dimension.low
        assert ours.max() <= dimension.high


def test_log_uniform_against_its_formula() -> None:
    dimension = parse_search_space(SPACE, start=START)["learning_rate"]
    rng = np.random.default_rng(1)
    drawn = np.log([dimension.sample(rng) for _ in range(3000)])
    low, high = math.log(1e-5), math.log(3e-3)
    assert stats.kstest(drawn, stats.uniform(low, high - low).cdf).pvalue > 0.001


def test_types_stay() -> None:
    rng = np.random.default_rng(2)
    for name, dimension in parse_search_space(SPACE, start=START).items():
        assert type(dimension.sample(rng)) is type(START[name])
        assert type(dimension.perturb(START[name], factor=1.2, rng=rng)) is type(START[name])


@pytest.mark.parametrize(
    ("entry", "start", "up", "down"),
    [
        ({"low": 0.0, "high": 0.5}, 0.0, 0.005, 0.0),
        ({"low": -1.0, "high": 1.0}, 0.0, 0.02, -0.02),
        # 1 - x is what a factor multiplies, and 0 here.
        ({"low": 0.5, "high": 1.0, "complement": True}, 1.0, 0.995, 1.0),
        # 1e-300 is moved by a factor, and a bound is no fixed point.
        ({"low": 0.0, "high": 1.0}, 1e-300, 1.2e-300, 8e-301),
        ({"low": 0.1, "high": 1.0}, 0.0, 0.1, 0.1),
    ],
)
def test_what_no_factor_moves_goes_a_hundredth_of_its_range(
    entry: dict[str, object], start: float, up: float, down: float
) -> None:
    dimension = parse_search_space({"kl_coef": entry}, start={"kl_coef": start})["kl_coef"]
    rng = np.random.default_rng(0)
    assert dimension.perturb(start, factor=1.2, rng=rng) == pytest.approx(up, rel=1e-12)
    assert dimension.perturb(start, factor=0.8, rng=rng) == pytest.approx(down, rel=1e-12)


def test_choices_of_an_integer_are_integers() -> None:
    dimension = parse_search_space({"num_epochs": {"choices": [2, 4.0]}}, start=START)["num_epochs"]
    assert dimension == Choices(choices=(2, 4))
    assert all(type(choice) is int for choice in dimension.choices)


def test_a_valid_space_passes_also_with_a_start_value_outside() -> None:
    validate_search_space(SPACE, names=NAMES, start={**START, "learning_rate": 1e30})
    validate_search_space({}, names=NAMES, start=START)


@pytest.mark.parametrize(
    ("name", "entry", "message"),
    [
        (
            "learning_rat",
            {"low": 0, "high": 1},
            ": no such hyperparameter; did you mean 'learning_rate'?",
        ),
        ("gamma", {"low": 0.9, "hihg": 1}, ".hihg: no such key; did you mean 'high'?"),
        ("gamma", {"low": 0.9}, ": high is missing"),
        (
            "gamma",
            {"low": 0.9, "high": 0.5},
            ": low must be at most high, got low 0.9 and high 0.5",
        ),
        ("gamma", {"low": "0.9", "high": 1}, ".low: must be a number, got '0.9'"),
        ("gamma", {"low": True, "high": 1}, ".low: must be a number, got True"),
        (
            "gamma",
            {"low": float("nan"), "high": 1},
            ".low: must be a number within +-1e+300, got nan",
        ),
        ("gamma", {"low": 0, "high": 10**400}, ".high: must be a number within +-1e+300"),
        (
            "gamma",
            {"low": 0, "high": 2, "complement": True},
            ": low and high must be in [0, 1] where complement is true, got 0 and 2",
        ),
        (
            "gamma",
            {"low": 0.9, "high": 1, "complement": True, "log": True},
            ".high: must be below 1 where log is about 1 - x, got 1",
        ),
        (
            "learning_rate",
            {"low": 0, "high": 1, "log": True},
            ".low: must be above 0 where log is true, got 0",
        ),
        (
            "learning_rate",
            {"low": 1, "high": 2, "log": "yes"},
            ".log: must be true or false, got 'yes'",
        ),
        ("clip_coef", {"low": 0.1, "high": 1, "step": 0}, ".step: must be above 0, got 0"),
        (
            "clip_coef",
            {"low": 0.1, "high": 1, "step": 0.1, "log": True},
            ": step and log exclude each other",
        ),
        (
            "clip_coef",
            {"low": 0.1, "high": 1, "step": 1e-18},
            ".step: at most 9007199254740992 steps",
        ),
        ("num_epochs", {"low": 1.2, "high": 1.8}, ": there is no integer from 1.2 to 1.8"),
        ("num_epochs", {"low": 1, "high": 4, "step": 0.5}, ".step: must be an integer, got 0.5"),
        (
            "num_epochs",
            {"low": 0, "high": 1, "complement": True},
            ".complement: must be false for an integer",
        ),
        (
            "clip_coef",
            {"low": 0.1, "high": 1, "factors": 1.1},
            ".factors: must be a list of 1 to 16 numbers, got 1.1",
        ),
        (
            "clip_coef",
            {"low": 0.1, "high": 1, "factors": []},
            ".factors: must be a list of 1 to 16 numbers, got []",
        ),
        (
            "clip_coef",
            {"low": 0.1, "high": 1, "factors": [0.9, 0]},
            ".factors: every factor must be greater than 0, got [0.9, 0]",
        ),
        (
            "clip_coef",
            {"low": 0.1, "high": 1, "factors": [0.9, "1.1"]},
            ".factors: must be a number, got '1.1'",
        ),
        (
            "clip_coef",
            {"low": 0.1, "high": 1, "factors": [0.9], "uniform": [0.8, 1.2]},
            ": factors and uniform exclude each other",
        ),
        (
            "clip_coef",
            {"low": 0.1, "high": 1, "uniform": [1.1, 1.5]},
            ".uniform: must be [a, b] with 0 < a < 1 < b (of others values would only rise, or "
            "only fall), got [1.1, 1.5]",
        ),
        ("clip_coef", {"low": 0.1, "high": 1, "uniform": 1.5}, ".uniform: must be [a, b] with"),
        ("num_epochs", {"choices": []}, ".choices: must be a list of one or more numbers, got []"),
        ("num_epochs", {"choices": [1, 2.5]}, ".choices: must be integers, got [1, 2.5]"),
        ("num_epochs", {"choices": [1, 1]}, ".choices: must be different numbers"),
        ("num_epochs", {"choices": [1, "2"]}, ".choices: must be a number, got '2'"),
        ("num_epochs", {"choices": [1], "low": 0}, ": choices must stand alone, got choices, low"),
        ("num_epochs", [1, 2], ": must be {low, high} or {choices}, got [1, 2]"),
    ],
)
def test_errors_name_the_key_the_rule_and_the_value(
    name: str, entry: Mapping[str, object], message: str
) -> None:
    key = "populations.player.search_space"
    with pytest.raises(ConfigError) as caught:
        validate_search_space({name: entry}, names=NAMES, start=START, key=key)
    assert str(caught.value).startswith(f"{key}.{name}{message}")
