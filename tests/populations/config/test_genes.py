"""Search spaces of settings and booleans: what runs, and what is refused at launch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
import pytest
from pydantic import Field

from arena.config import Model
from arena.errors import ConfigError
from arena.types import Value
from populations.config.resolve import resolve_config
from populations.config.run_config import RunConfig, validate_config
from populations.controller.evolution.initial_policies import initial_policies
from populations.pbt.kinds import EXPLORES, ORDERED_ONLY
from populations.pbt.make import make_explore
from populations.pbt.settings import PbtConfig
from populations.search_space import parse_search_space
from populations.views.questions.study import _distribution
from tests.populations.controller.simulated import duel_spec
from tests.populations.pbt.histories import generation


class Coloured:
    """An algorithm of a user's own, as far as a configuration looks at it."""

    class Hyperparameters(Model):
        learning_rate: float = Field(1e-3, gt=0.0)
        greedy: bool = False

    class Settings(Model):
        CHANGEABLE: ClassVar[tuple[str, ...]] = ("colour", "is_fast", "depth")
        colour: Literal["red", "green", "blue"] = "red"
        is_fast: bool = True
        depth: int = Field(3, ge=1, le=5)
        fixed: bool = True


class Misdeclared:
    Hyperparameters = Coloured.Hyperparameters

    class Settings(Model):
        CHANGEABLE: ClassVar[tuple[str, ...]] = ("shape",)


COLOURED = f"{__name__}:Coloured"
SPACE: dict[str, object] = {
    "learning_rate": {"low": 1e-4, "high": 1e-2, "log": True},
    "greedy": {"choices": [False, True]},
    "colour": {"choices": ["green", "red", "blue"]},
    "is_fast": {"choices": [False, True]},
    "depth": {"low": 1, "high": 5},
}


def resolved(pbt: Mapping[str, object] | None = None, **population: object) -> RunConfig:
    own = {"algorithm": COLOURED, "search_space": SPACE, **population}
    document = {
        "environment": {"id": "tests.duel:env"},
        "populations": {"player": own},
        "pbt": pbt or {},
    }
    return resolve_config(validate_config(document), duel_spec(), launch_directory=".", num_cores=2)


def test_settings_in_a_search_space_are_among_the_policies_hyperparameters() -> None:
    config = resolved(hyperparameters={"greedy": True}, algorithm_settings={"is_fast": False})
    population = config.populations["player"]
    assert population.start_values == {
        "learning_rate": 1e-3, "greedy": True, "colour": "red", "is_fast": False, "depth": 3,
    }  # fmt: skip
    first, *others = initial_policies(config)
    assert first.hyperparameters == population.start_values
    for name in ("greedy", "colour", "is_fast", "depth"):
        assert len({row.hyperparameters[name] for row in (first, *others)}) > 1
        kind = type(population.start_values[name])
        assert all(type(row.hyperparameters[name]) is kind for row in others)
    assert resolve_config(validate_config(config.model_dump(mode="json")), duel_spec(),
                          launch_directory=".", num_cores=2) == config  # fmt: skip


@pytest.mark.parametrize(
    ("population", "message"),
    [
        ({"search_space": {"fixed": {"choices": [False, True]}}},
         "populations.player.search_space.fixed: no such hyperparameter"),
        ({"search_space": {"colour": {"choices": ["red", "pink"]}}},
         "populations.player.search_space.colour allows 'pink', but "
         "populations.player.algorithm_settings.colour: must be 'red', 'green' or 'blue'"),
        ({"search_space": {"depth": {"low": 1, "high": 9}}},
         "populations.player.search_space.depth allows 9, but"),
        ({"search_space": {"colour": {"choices": ["green", "blue"]}}},
         "populations.player.algorithm_settings.colour: must be one of the choices of its search "
         "space, ['green', 'blue'], got 'red'"),
        ({"search_space": {"learning_rate": {"choices": [False, True]}}},
         "search_space.learning_rate: must be {low, high} or choices of numbers"),
        ({"search_space": {"greedy": {"low": 0, "high": 1}}},
         "search_space.greedy: must be {choices: [false, true]}"),
        ({"hyperparameters": {"learning_rate": True}},
         "populations.player.hyperparameters.learning_rate: must be a number, got True"),
        ({"hyperparameters": {"greedy": 0.5}},
         "populations.player.hyperparameters.greedy: must be true or false, got 0.5"),
        ({"algorithm": f"{__name__}:Misdeclared", "search_space": {}},
         "Settings.CHANGEABLE must name settings, got 'shape'"),
        ({"algorithm": "ppo", "search_space": {"normalize_returns": {"choices": [False, True]}}},
         "search_space.normalize_returns: no such hyperparameter"),
    ],
)  # fmt: skip
def test_what_cannot_be_explored_is_refused_with_rule_and_value(
    population: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError) as error_info:
        resolved(None, **population)
    assert message in str(error_info.value)


def test_ppo_has_settings_that_may_change() -> None:
    space = {
        "advantages": {"choices": ["gae", "vtrace"]},
        "advantage_normalization": {"choices": ["rollout", "minibatch"]},
    }
    for explore in EXPLORES:
        config = resolved({"explore": explore}, algorithm="ppo", search_space=space)
        start = config.populations["player"].start_values
        assert (start["advantages"], start["advantage_normalization"]) == ("gae", "rollout")


@pytest.mark.slow
@pytest.mark.parametrize("explore", list(EXPLORES))
def test_each_rule_of_exploring_handles_names_or_refuses_them_by_name(explore: str) -> None:
    if explore in ORDERED_ONLY:
        with pytest.raises(ConfigError) as error_info:
            resolved({"explore": explore})
        assert (
            f"populations.player.search_space.colour: pbt.explore {explore} takes at most 2 "
            "choices without an order"
        ) in str(error_info.value)
    two = {**SPACE, "colour": {"choices": ["red", "blue"]}}
    space = two if explore in ORDERED_ONLY else SPACE
    population = resolved({"explore": explore}, search_space=space).populations["player"]
    rule = make_explore(PbtConfig(explore=explore))
    start, colours = population.start_values, ("green", "red")
    history = [
        # Policies with the second colour gain more.
        generation(
            {**start, "learning_rate": 1e-3 * (1 + index / 20), "colour": colours[index % 2],
             "greedy": index // 2 % 2 == 1, "is_fast": index // 4 % 2 == 1, "depth": 1 + index % 5},
            rate=10.0 + 300.0 * (index % 2) + index, index=index % 4, number=index // 4,
            begin=index * 1000,
        )
        for index in range(14)
    ]  # fmt: skip
    seen: dict[str, set[Value]] = {name: set() for name in space}
    for seed in range(2 if explore == "gp" else 12):
        found = rule.explore(
            start, population.search_space, history=history, agent_steps=20_000,
            rng=np.random.default_rng(seed),
        )  # fmt: skip
        dimensions = parse_search_space(population.search_space, start=start)
        for name, value in found.new.items():
            seen[name].add(value)
            assert dimensions[name].fit(value) == value
        assert set(found.moves) == set(space)
    if explore in ("perturb", "resample", "random", "cma_es"):
        assert all(len(values) > 1 for values in seen.values())
    # Red was by far the best in the past.
    assert explore != "tpe" or seen["colour"] == {"red"}


def test_an_optuna_export_has_names_as_categories() -> None:
    from optuna.distributions import CategoricalDistribution

    dimensions = parse_search_space(SPACE, start={})  # type: ignore[arg-type]
    assert _distribution(dimensions["colour"], value="blue") == CategoricalDistribution(
        ("green", "red", "blue")
    )
    assert _distribution(dimensions["greedy"], value=False) == CategoricalDistribution(
        (False, True)
    )
    assert _distribution(dimensions["colour"], value="pink") is None
