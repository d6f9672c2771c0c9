"""Start values that are those of a player of another run."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import pytest

from arena.errors import ConfigError
from populations.config.resolve import resolve_config
from populations.config.run_config import RunConfig, validate_config
from tests.populations.controller.simulated import duel_spec

start: Any = importlib.import_module("populations.commands.launch.origin")
imported: Any = importlib.import_module("populations.commands.launch.imported_weights")
players: Any = importlib.import_module("populations.commands.players.in_run")

SCHEDULE = {"linear": [1e-3, 1e-4], "over_agent_steps": 1000}


def resolved(**population: object) -> RunConfig:
    document = {"environment": {"id": "tests.duel:env"}, "populations": {"player": population}}
    return resolved_again(validate_config(document))


def resolved_again(config: RunConfig) -> RunConfig:
    return resolve_config(config, duel_spec(), launch_directory=".", num_cores=2)


def player(hyperparameters: Mapping[str, object], **more: object) -> Any:
    trained = players.TrainedWith(hyperparameters=hyperparameters, **more)
    return imported.Import(
        files={}, origin="runs/a", policy="player/p001", agent_steps=5, digest="d",
        trained_with=trained, gives_hyperparameters=True,
    )  # fmt: skip


def started(config: RunConfig, one: Any, *given: str, told: list[str] | None = None) -> RunConfig:
    changed = start.with_hyperparameters(
        config,
        config,
        imports={"player": one},
        overrides=given,
        notify=([] if told is None else told).append,
    )
    return resolved_again(changed)


def test_start_values_are_the_players_and_those_that_it_had_none_of_the_algorithms() -> None:
    config = resolved(hyperparameters={"learning_rate": 1e-3, "gamma": 0.5, "target_kl": 0.1})
    # The values have a manifest's form: all numbers are floats, and null is a missing name.
    changed = started(config, player({"learning_rate": 7e-4, "num_epochs": 3.0}))
    values = changed.populations["player"].start_values
    assert (values["learning_rate"], values["num_epochs"], values["gamma"]) == (7e-4, 3, 0.99)
    assert isinstance(values["num_epochs"], int)
    assert "target_kl" not in values
    # run.yaml keeps these values.
    assert resolved_again(validate_config(changed.model_dump(mode="json"))) == changed


def test_what_the_command_line_gives_goes_before_the_players_and_is_said() -> None:
    config = resolved(
        hyperparameters={"learning_rate": 1e-3, "gamma": 0.5, "target_kl": 0.1},
        algorithm_settings={"advantages": "gae"},
    )
    one = player({"learning_rate": 7e-4, "gamma": 0.9, "advantages": "vtrace"})
    below, told = "populations.player", list[str]()
    given = [
        *(f"{below}.hyperparameters.lr=0.001", f"{below}.hyperparameters.target_kl=0.1"),
        *(f"{below}.algorithm_settings={{advantages: gae}}", "seed=2"),
    ]
    population = started(config, one, *given, told=told).populations["player"]
    values = population.start_values
    # The imported value overrides the configuration's gamma, as the option says.
    assert (values["learning_rate"], values["gamma"], values["target_kl"]) == (1e-3, 0.9, 0.1)
    assert population.algorithm_settings["advantages"] == "gae"
    assert told == [
        "learning_rate of player is 0.001, as given, not 0.0007 of player/p001",
        "advantages of player is 'gae', as given, not 'vtrace' of player/p001",
    ]


def test_a_schedule_stays_whatever_value_the_player_had() -> None:
    config = resolved(hyperparameters={"learning_rate": SCHEDULE})
    changed = started(config, player({"learning_rate": 7e-4, "gamma": 0.9}))
    written = changed.populations["player"].hyperparameters
    assert (written["learning_rate"], written["gamma"]) == (SCHEDULE, 0.9)


def test_a_schedule_of_the_players_run_alone_leaves_the_value_in_use() -> None:
    one = player({"learning_rate": 7e-4}, factors={"learning_rate": 2.0})
    population = started(resolved(), one).populations["player"]
    assert population.start_values["learning_rate"] == 7e-4
    assert population.scheduled.completed(one.factors) == {}


def test_a_start_value_outside_of_the_bounds_is_taken_as_in_a_configuration() -> None:
    space = {"learning_rate": {"low": 1e-5, "high": 1e-4, "log": True}}
    changed = started(resolved(search_space=space), player({"learning_rate": 7e-4}))
    assert changed.populations["player"].start_values["learning_rate"] == 7e-4


def test_a_setting_that_pbt_changed_is_taken_by_its_name() -> None:
    one = player({"advantages": "vtrace"})
    # The choices have another order, and no search changes the value.
    space = {"advantages": {"choices": ["vtrace", "gae"]}}
    searched = started(resolved(search_space=space), one).populations["player"]
    assert searched.algorithm_settings["advantages"] == "vtrace"
    assert searched.start_values["advantages"] == "vtrace"
    fixed = started(resolved(), one).populations["player"]
    assert fixed.algorithm_settings["advantages"] == "vtrace"
    assert "advantages" not in fixed.start_values


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (player({"learning_rate": 7e-4}, algorithm="mine:Sarsa"),
         "runs/a: it learned by mine:Sarsa, population player of this run by ppo"),
        (player({"momentum": 0.9}), r"populations.player.hyperparameters.momentum: no such hyper"),
        (player({"colour": "red"}), "populations.player.algorithm_settings.colour: no such set"),
        (player({"gamma": 1.5}), r"populations.player.hyperparameters.gamma.*1.*got 1.5"),
    ],
)  # fmt: skip
def test_values_that_this_run_cannot_have_are_refused_by_name(one: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        started(resolved(), one)


def test_events_say_the_hyperparameters_only_where_policies_start_from_them() -> None:
    one = player({"gamma": 0.9}, factors={"learning_rate": 2.0})
    assert one.record["hyperparameters"] == {"gamma": 0.9}
    assert one.record["factors"] == one.factors == {"learning_rate": 2.0}
    weights_alone = imported.Import(
        files={}, origin="a", policy="p", agent_steps=5, digest="d", trained_with=one.trained_with
    )
    assert not {"hyperparameters", "factors"} & set(weights_alone.record)
    assert weights_alone.factors == {}
