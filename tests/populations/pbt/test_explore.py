from __future__ import annotations

import os
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from populations.choices import number_of
from populations.core import Explore, SearchSpace
from populations.pbt.explore import (
    NoExplore,
    Perturb,
    PerturbSettings,
    Resample,
    initial_hyperparameters,
)
from populations.records.rows import GenerationRow
from tests.populations.rows import make_generation
from tests.support import run_process

STEP = Perturb(PerturbSettings(perturb_factors=(0.8, 1.2), resample_probability=0.0))
UP, DOWN = (
    Perturb(PerturbSettings(perturb_factors=(1.2,), resample_probability=0.0)),
    Perturb(PerturbSettings(perturb_factors=(0.8,), resample_probability=0.0)),
)
SPACE: SearchSpace = {
    "learning_rate": {"low": 1e-5, "high": 3e-3, "log": True},
    "entropy_coef": {"low": 0.0, "high": 0.1},
    "gamma": {"low": 0.9, "high": 0.9999, "complement": True},
    "clip_coef": {"low": 0.1, "high": 0.35, "step": 0.1},
    "num_epochs": {"low": 1, "high": 10},
    "num_minibatches": {"low": 1, "high": 64, "log": True},
    "rollout_length": {"low": 16, "high": 70, "step": 16},
    "max_grad_norm": {"choices": [0.1, 0.5, 2.0]},
}
ONE: SearchSpace = {"learning_rate": SPACE["learning_rate"]}
START = {
    "learning_rate": 3e-4,
    "entropy_coef": 0.01,
    "gamma": 0.99,
    "clip_coef": 0.2,
    "num_epochs": 4,
    "num_minibatches": 4,
    "rollout_length": 32,
    "max_grad_norm": 0.5,
    "value_coef": 0.5,
}
BOUNDS = {
    "learning_rate": (1e-5, 3e-3),
    "entropy_coef": (0.0, 0.1),
    "gamma": (0.9, 0.9999),
    "clip_coef": (0.1, 0.3),
    "num_epochs": (1, 10),
    "num_minibatches": (1, 64),
    "rollout_length": (16, 64),
    "max_grad_norm": (0.1, 2.0),
    "value_coef": (0.5, 0.5),
}


def explored(rule: Explore, start: dict[str, float], seed: int = 0) -> dict[str, float]:
    new = rule.explore(start, SPACE, rng=np.random.default_rng(seed)).new
    return {name: number_of(value) for name, value in new.items()}


def test_one_step_up_by_hand() -> None:
    assert explored(UP, START) == pytest.approx(
        {
            "learning_rate": 3.6e-4,
            "entropy_coef": 0.012,
            "gamma": 0.988,  # 1 - 0.01 * 1.2
            "clip_coef": 0.3,  # 0.24 is nearest to 0.2, so one step
            "num_epochs": 5,  # 4.8
            "num_minibatches": 5,
            "rollout_length": 48,
            "max_grad_norm": 2.0,
            "value_coef": 0.5,  # not in the search space
        }
    )


def test_a_hyperparameter_with_factors_of_its_own_moves_by_these() -> None:
    space: dict[str, dict[str, object]] = {
        "rho_bar": {"low": 0.5, "high": 2.0, "factors": [1.005]},
        "gamma": {"low": 0.5, "high": 1.0, "complement": True, "factors": [0.5, 0.5]},
        "clip_coef": {"low": 0.1, "high": 0.9},
    }
    start = {"rho_bar": 1.0, "gamma": 0.9, "clip_coef": 0.2}
    rule = Perturb(PerturbSettings(perturb_factors=(1.2,), resample_probability=0.0))
    found = rule.explore(start, space, rng=np.random.default_rng(0))
    # 1 * 1.005; 1 - 0.5 * 0.1; 0.2 * 1.2
    assert found.new == pytest.approx({"rho_bar": 1.005, "gamma": 0.95, "clip_coef": 0.24})
    assert found.moves == {"rho_bar": "x1.005", "gamma": "x0.5", "clip_coef": "x1.2"}


def test_factors_are_drawn_between_two_ends() -> None:
    space: dict[str, dict[str, object]] = {
        "learning_rate": {"low": 0.1, "high": 9.0},
        "gamma": {"low": 0.0, "high": 1.0, "complement": True, "uniform": [0.5, 2.0]},
        "clip_coef": {"low": 0.1, "high": 9.0, "factors": [3.0]},
        "num_epochs": {"choices": [1, 2, 3]},
    }
    start = {"learning_rate": 1.0, "gamma": 0.6, "clip_coef": 1.0, "num_epochs": 2}
    rule = Perturb(PerturbSettings(perturb_uniform=(0.75, 1.5), resample_probability=0.0))
    rng = np.random.default_rng(0)
    found = [rule.explore(start, space, rng=rng).new for _ in range(2000)]
    rates = np.array([new["learning_rate"] for new in found])
    gammas = np.array([new["gamma"] for new in found])
    assert stats.kstest(rates, stats.uniform(0.75, 0.75).cdf).pvalue > 0.01
    # 1 - U(0.5, 2) * 0.4
    assert stats.kstest(gammas, stats.uniform(0.2, 0.6).cdf).pvalue > 0.01
    assert {new["clip_coef"] for new in found} == {3.0}
    # A choice goes up with factors above 1, which are two thirds of them.
    assert np.mean([new["num_epochs"] == 3 for new in found]) == pytest.approx(2 / 3, abs=0.04)


def test_one_step_down_by_hand() -> None:
    assert explored(DOWN, START) == pytest.approx(
        {
            "learning_rate": 2.4e-4,
            "entropy_coef": 0.008,
            "gamma": 0.992,  # 1 - 0.01 * 0.8
            "clip_coef": 0.1,
            "num_epochs": 3,
            "num_minibatches": 3,
            "rollout_length": 16,
            "max_grad_norm": 0.1,
            "value_coef": 0.5,
        }
    )


def test_moves_say_what_was_done() -> None:
    exploration = UP.explore(
        {**START, "num_epochs": 10, "max_grad_norm": 7.0}, SPACE, rng=np.random.default_rng(0)
    )
    assert exploration.old["num_epochs"] == 10
    assert exploration.moves == {
        "learning_rate": "x1.2",
        "entropy_coef": "x1.2",
        "gamma": "x1.2",
        "clip_coef": "x1.2",
        "num_epochs": "kept",  # at its bound
        "num_minibatches": "x1.2",
        "rollout_length": "x1.2",
        "max_grad_norm": "resampled",  # was no valid choice
    }
    neighbours = [
        rule.explore(START, SPACE, rng=np.random.default_rng(0)).moves["max_grad_norm"]
        for rule in (UP, DOWN)
    ]
    assert neighbours == ["next", "previous"]


def test_every_factor_is_as_likely_and_some_values_are_drawn_anew() -> None:
    rng = np.random.default_rng(3)
    rule = Perturb(PerturbSettings(perturb_factors=(0.8, 1.2), resample_probability=0.25))
    moves = Counter(rule.explore(START, ONE, rng=rng).moves["learning_rate"] for _ in range(4000))
    # standard deviation of a share of 1/4: 0.007, of 3/8: 0.0077
    assert moves["resampled"] / 4000 == pytest.approx(0.25, abs=0.03)
    assert moves["x0.8"] / 4000 == pytest.approx(0.375, abs=0.03)
    assert moves["x1.2"] / 4000 == pytest.approx(0.375, abs=0.03)


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.25, 1.0]))
@pytest.mark.slow
def test_a_thousand_steps_stay_in_bounds(seed: int, resample_probability: float) -> None:
    rng = np.random.default_rng(seed)
    rule = Perturb(
        PerturbSettings(
            perturb_factors=(0.5, 0.8, 1.2, 3.0), resample_probability=resample_probability
        )
    )
    current: dict[str, float] = dict(START)
    for _ in range(1000):
        new = rule.explore(current, SPACE, rng=rng).new
        current = {name: number_of(value) for name, value in new.items()}
        for name, (low, high) in BOUNDS.items():
            assert low <= current[name] <= high, name
            assert type(current[name]) is type(START[name])
    assert current["max_grad_norm"] in (0.1, 0.5, 2.0)
    assert current["rollout_length"] % 16 == 0


@settings(deadline=None)
@given(
    st.floats(allow_nan=True, allow_infinity=True),
    st.floats(allow_nan=True, allow_infinity=True),
    st.floats(1e-6, 1e6),
)
def test_from_wherever_it_starts_it_ends_within_bounds(
    rate: float, gamma: float, factor: float
) -> None:
    rule = Perturb(PerturbSettings(perturb_factors=(factor,), resample_probability=0.0))
    new = explored(rule, {**START, "learning_rate": rate, "gamma": gamma})
    assert 1e-5 <= new["learning_rate"] <= 3e-3
    assert 0.9 <= new["gamma"] <= 0.9999


@settings(deadline=None)
@given(st.integers(1, 10), st.sampled_from([0.8, 0.99, 1.01, 1.2]))
def test_integers_move_unless_a_bound_is_in_the_way(value: int, factor: float) -> None:
    rule = Perturb(PerturbSettings(perturb_factors=(factor,), resample_probability=0.0))
    new = explored(rule, {**START, "num_epochs": value})["num_epochs"]
    if factor > 1.0:
        assert new > value or value == 10
    else:
        assert new < value or value == 1


def test_what_has_no_value_yet_is_drawn_from_its_range() -> None:
    space: SearchSpace = {"target_kl": {"low": 0.01, "high": 0.1}}
    exploration = STEP.explore({}, space, rng=np.random.default_rng(0))
    assert 0.01 <= number_of(exploration.new["target_kl"]) <= 0.1
    assert exploration.moves == {"target_kl": "resampled"}


def test_hashes_of_strings_decide_nothing() -> None:
    """The 40th of the fifty bugs: a set of names has another order in each process."""
    script = (
        "import numpy as np; from populations.pbt.explore import Perturb; "
        "rng = np.random.default_rng(3); "
        f"print(dict(Perturb().explore({START}, {SPACE}, rng=rng).new))"
    )
    child = run_process(
        [sys.executable, "-c", script], env={**os.environ, "PYTHONHASHSEED": "77"}, check=True
    )
    assert child.stdout == f"{explored(Perturb(), START, seed=3)}\n"


def test_hyperparameters_do_not_shift_each_others_randomness() -> None:
    rule = Perturb(PerturbSettings(perturb_factors=(0.8, 1.2), resample_probability=0.0))
    first = {name: SPACE[name] for name in ("learning_rate", "gamma")}
    for seed in range(20):
        both = rule.explore(START, first, rng=np.random.default_rng(seed)).new
        other = rule.explore(
            {**START, "learning_rate": 1e-5}, first, rng=np.random.default_rng(seed)
        ).new
        assert both["gamma"] == other["gamma"]


def test_resample_draws_all_anew_and_none_changes_nothing() -> None:
    drawn = Resample().explore(START, SPACE, rng=np.random.default_rng(1))
    assert set(drawn.moves.values()) == {"resampled"}
    assert drawn.new["value_coef"] == 0.5
    assert drawn.new["learning_rate"] != START["learning_rate"]
    kept = NoExplore().explore(START, SPACE, rng=np.random.default_rng(1))
    assert kept.new == START


def test_a_population_starts_diverse_and_reproducibly() -> None:
    members = [
        initial_hyperparameters(START, SPACE, rng=np.random.default_rng(seed)) for seed in range(8)
    ]
    again = [
        initial_hyperparameters(START, SPACE, rng=np.random.default_rng(seed)) for seed in range(8)
    ]
    assert members == again
    assert len({tuple(member.items()) for member in members}) == 8


def first_generation(hyperparameters: dict[str, float]) -> GenerationRow:
    return make_generation("player/p000", hyperparameters=hyperparameters)


def test_genes_move_as_often_as_they_should() -> None:
    rng = np.random.default_rng(4)
    rule = Perturb(PerturbSettings(resample_probability=0.0, mutation_probability=0.15))
    moves = Counter(rule.explore(START, ONE, rng=rng).moves["learning_rate"] for _ in range(4000))
    assert moves["kept"] / 4000 == pytest.approx(0.85, abs=0.02)  # 3.5 standard deviations
    outside = Perturb(PerturbSettings(mutation_probability=0.0)).explore(
        {"a": 9.0}, {"a": {"low": 0, "high": 1}}, rng=rng
    )
    assert (outside.new, outside.moves) == ({"a": 9.0}, {"a": "kept"})


def test_genes_go_back_to_their_start_values() -> None:
    rule = Perturb(PerturbSettings(reset_probability=1.0))
    first = first_generation({"learning_rate": 1.0, "gamma": 0.95, "num_epochs": 4})
    space: SearchSpace = {
        name: SPACE[name] for name in ("learning_rate", "gamma", "num_epochs", "entropy_coef")
    }
    exploration = rule.explore(START, space, history=[first], rng=np.random.default_rng(0))
    assert exploration.new["learning_rate"] == 3e-3  # moved into its bounds
    assert exploration.new["gamma"] == 0.95
    assert exploration.moves == {
        "learning_rate": "reset",
        "gamma": "reset",
        "num_epochs": "kept",  # already at its start value
        "entropy_coef": exploration.moves["entropy_coef"],
    }
    assert exploration.moves["entropy_coef"] not in ("reset", "kept")  # no start value is known
    alone = rule.explore(START, space, rng=np.random.default_rng(0))
    assert "reset" not in alone.moves.values()


@pytest.mark.parametrize("log", [False, True])
def test_a_discount_of_0_is_a_value_as_any_other(log: bool) -> None:
    """About 1 - gamma a step leaves 0; about gamma itself no factor could."""
    high = 0.95 if log else 1.0
    space: SearchSpace = {"gamma": {"low": 0.0, "high": high, "complement": True, "log": log}}
    rng = np.random.default_rng(0)
    down = DOWN.explore({"gamma": 0.0}, space, rng=rng).new["gamma"]
    up = UP.explore({"gamma": 0.0}, space, rng=rng).new["gamma"]
    assert down == pytest.approx(0.2)  # 1 - 0.8 (1 - 0)
    assert up == 0.0  # the bound prevents a larger value
    gamma = 0.0
    for _ in range(300):
        gamma = number_of(Perturb().explore({"gamma": gamma}, space, rng=rng).new["gamma"])
        assert 0.0 <= gamma <= high
