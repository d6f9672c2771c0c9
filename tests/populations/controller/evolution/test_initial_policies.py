"""Policies with which a run begins: start values, diversity, factors of schedules."""

from __future__ import annotations

import math

import numpy as np
import pytest

from populations.choices import number_of
from populations.config.run_config import RunConfig, validate_config
from populations.controller.evolution.initial_policies import initial_policies
from populations.pbt.explore import Perturb

SPREAD: dict[str, object] = {
    "environment": {"id": "tests.duel:env"},
    "populations": {
        "player": {
            "size": 301,
            "hyperparameters": {"learning_rate": 1e-3},
            "search_space": {"learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}},
        }
    },
}


def config(*, seed: int = 1, learning_rate: object = 1e-3) -> RunConfig:
    """A configuration of four policies whose learning rate may change."""
    population: dict[str, object] = {
        "size": 4,
        "hyperparameters": {"learning_rate": learning_rate},
        "search_space": {"learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}},
    }
    environment = {"id": "tests.duel:env"}
    return validate_config(
        {"environment": environment, "populations": {"player": population}, "seed": seed}
    )


def test_policies_are_diverse_from_the_start_and_follow_from_the_seed() -> None:
    policies = initial_policies(config(seed=7))
    assert [row.policy for row in policies] == [f"player/p00{index}" for index in range(4)]
    rates = [row.hyperparameters["learning_rate"] for row in policies]
    assert rates[0] == 1e-3, "the reference member has the values themselves"
    # The seed consists of the run's seed, 3, the population's position and the index.
    space = config().populations["player"].search_space
    start = config().populations["player"].start_values
    expected = [
        Perturb().explore(
            start, space, rng=np.random.default_rng(np.random.SeedSequence([7, 3, 0, index]))
        )
        for index in range(1, 4)
    ]
    assert [row.hyperparameters for row in policies[1:]] == [found.new for found in expected]
    assert 1e-3 not in rates[1:]
    assert initial_policies(config(seed=8)) != policies


def test_sampled_ones_are_anywhere_in_the_search_space_but_for_the_reference_member() -> None:
    sampled = validate_config({**SPREAD, "pbt": {"initial": "sampled"}})
    rows = initial_policies(sampled)
    rates = np.array([row.hyperparameters["learning_rate"] for row in rows])
    assert rates[0] == 1e-3
    # Each value has its own of 301 equal parts of the logarithm; the reference's is the middle one.
    parts = (np.log10(rates[1:]) + 4.0) / 2.0 * 301
    assert sorted(parts.astype(int).tolist()) == [*range(150), *range(151, 301)]
    # The values are not ordered by index.
    assert abs(np.corrcoef(np.arange(300), parts)[0, 1]) < 0.2
    # With a single perturbation three in four stay near the start value.
    same = initial_policies(validate_config(SPREAD))
    near = [0.7e-3 < number_of(row.hyperparameters["learning_rate"]) < 1.3e-3 for row in same]
    assert sum(near) > 200
    # Values outside the search space stay.
    assert all(
        {**row.hyperparameters, "learning_rate": 1e-3} == rows[0].hyperparameters for row in rows
    )


def test_few_samples_cover_every_range_whatever_the_seed() -> None:
    space = {
        "learning_rate": {"low": 1e-5, "high": 1e-1, "log": True},
        "gamma": {"low": 0.9, "high": 0.999, "complement": True},
        "num_epochs": {"low": 1, "high": 4},
        "clip_coef": {"choices": [0.1, 0.2, 0.3, 0.4]},
    }
    start = {"learning_rate": 2e-2, "gamma": 0.99, "num_epochs": 2, "clip_coef": 0.2}
    population = {"size": 4, "search_space": space, "hyperparameters": start}
    orders = set()
    for seed in range(20):
        document = {"environment": {"id": "tests.duel:env"}, "seed": seed}
        sampled = validate_config(
            {**document, "populations": {"player": population}, "pbt": {"initial": "sampled"}}
        )
        first, *others = initial_policies(sampled)
        assert first.hyperparameters["learning_rate"] == 2e-2
        rates = [number_of(row.hyperparameters["learning_rate"]) for row in others]
        # 2e-2 is in the last of four decades, and each other policy has one of the remaining ones.
        assert sorted(math.floor(math.log10(rate)) for rate in rates) == [-5, -4, -3]
        orders.add(tuple(np.argsort(rates)))
        for name, choices in (("num_epochs", {1, 2, 3, 4}), ("clip_coef", {0.1, 0.2, 0.3, 0.4})):
            own = first.hyperparameters[name]
            assert {row.hyperparameters[name] for row in others} == choices - {own}
        discounts = [number_of(row.hyperparameters["gamma"]) for row in others]
        assert all(0.9 <= gamma <= 0.999 for gamma in discounts)
        assert max(discounts) - min(discounts) > 0.099 / 4
    # The orders of different hyperparameters are independent.
    assert len(orders) > 3


def test_a_schedule_begins_with_the_factor_that_it_is_given() -> None:
    schedule = {"linear": [1e-3, 0.0], "over_agent_steps": 1000}
    document = config(learning_rate=schedule)
    first, *others = initial_policies(document, factors={"player": {"learning_rate": 2.5}})
    # 1e-3 at 0 agent steps, times 2.5
    assert first.hyperparameters["learning_rate"] == pytest.approx(2.5e-3)
    assert first.factors == {"learning_rate": 2.5}
    for row in others:
        # Exploration changes the factor together with the value.
        assert row.factors["learning_rate"] != 2.5
        assert row.hyperparameters["learning_rate"] == pytest.approx(
            1e-3 * row.factors["learning_rate"]
        )


def test_a_factor_ends_at_the_bounds_and_without_a_schedule_there_is_none() -> None:
    schedule = {"linear": [1e-3, 0.0], "over_agent_steps": 1000}
    high = initial_policies(
        config(learning_rate=schedule), factors={"player": {"learning_rate": 50.0}}
    )[0]
    assert high.hyperparameters["learning_rate"] == 1e-2
    plain = initial_policies(config(), factors={"player": {"learning_rate": 50.0}})[0]
    assert plain.hyperparameters["learning_rate"] == 1e-3
    assert plain.factors == {}
