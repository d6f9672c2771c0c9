"""Names of other libraries, and overrides on the command line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from arena.errors import ConfigError
from populations.config.overrides import ALIASES, apply_overrides, parse_override
from populations.config.run_config import RunConfig, load_config

PROMISED = {
    "lr": "learning_rate",
    "ent_coef": "entropy_coef",
    "vf_coef": "value_coef",
    "n_epochs": "num_epochs",
    "clip_range": "clip_coef",
}
VALUES = {"lr": 2e-4, "ent_coef": 0.02, "vf_coef": 0.7, "n_epochs": 3, "clip_range": 0.1}


def load(
    tmp_path: Path, population: dict[str, object], overrides: Sequence[str] = ()
) -> tuple[RunConfig, list[str]]:
    path = tmp_path / "config.yaml"
    document = {"environment": {"id": "a:b"}, "populations": {"player": population}}
    path.write_text(json.dumps(document))
    notices: list[str] = []
    return load_config(path, overrides, notify=notices.append), notices


def test_the_five_are_promised() -> None:
    assert PROMISED.items() <= ALIASES.items()


@pytest.mark.parametrize("alias", PROMISED)
def test_an_alias_in_yaml_is_read_as_the_real_name(alias: str, tmp_path: Path) -> None:
    ranges = {"low": 0.001, "high": 0.5}
    config, notices = load(
        tmp_path,
        {
            "hyperparameters": {alias: VALUES[alias]},
            "search_space": {alias: ranges},
            "schedule": [{"agent_steps": 0, "hyperparameters": {alias: VALUES[alias]}}],
        },
    )
    population, name = config.populations["player"], PROMISED[alias]
    assert population.hyperparameters == {name: VALUES[alias]}
    assert population.search_space == {name: ranges}
    assert population.schedule[0].hyperparameters == {name: VALUES[alias]}
    places = ("hyperparameters", "search_space", "schedule.hyperparameters")
    assert notices == [f"populations.player.{p}.{alias} is read as {name}" for p in places]


def test_an_alias_in_an_override_replaces_the_real_name_of_the_file(tmp_path: Path) -> None:
    overrides = [
        "populations.player.hyperparameters.lr=1e-3",
        "populations.player.search_space.ent_coef={low: 0.001, high: 0.1}",
        "populations.player.search_space.lr.high=1e-2",
    ]
    population = {
        "hyperparameters": {"learning_rate": 3e-4, "gamma": 0.9},
        "search_space": {"learning_rate": {"low": 1e-5, "high": 1e-3}},
    }
    config, notices = load(tmp_path, population, overrides)
    player = config.populations["player"]
    assert player.hyperparameters == {"learning_rate": 1e-3, "gamma": 0.9}
    assert player.search_space["entropy_coef"] == {"low": 0.001, "high": 0.1}
    assert player.search_space["learning_rate"] == {"low": 1e-5, "high": 1e-2}
    assert "populations.player.hyperparameters.lr is read as learning_rate" in notices


def test_of_an_alias_and_its_name_the_last_override_counts(tmp_path: Path) -> None:
    key = "populations.player.hyperparameters"
    config, _ = load(tmp_path, {}, [f"{key}.lr=1e-3", f"{key}.learning_rate=2e-3"])
    assert config.populations["player"].hyperparameters == {"learning_rate": 2e-3}
    config, _ = load(tmp_path, {}, [f"{key}.learning_rate=2e-3", f"{key}={{lr: 1e-3}}"])
    assert config.populations["player"].hyperparameters == {"learning_rate": 1e-3}


def test_one_mapping_has_one_of_them(tmp_path: Path) -> None:
    message = "learning_rate must be there once, got it as lr and learning_rate"
    for names in (("lr", "learning_rate"), ("learning_rate", "lr")):
        with pytest.raises(ConfigError, match="must be there once, got it as"):
            load(tmp_path, {"hyperparameters": dict.fromkeys(names, 1e-3)})
    with pytest.raises(ConfigError, match=f"hyperparameters: {message}"):
        load(tmp_path, {"hyperparameters": {"lr": 1, "learning_rate": 1}})


def test_what_has_its_own_name_has_no_notice(tmp_path: Path) -> None:
    assert load(tmp_path, {"hyperparameters": {"learning_rate": 1e-3}})[1] == []


@pytest.mark.parametrize("overrides", [[], ["populations.player.algorithm=my:Own"]])
def test_an_own_algorithm_names_its_hyperparameters_itself(
    overrides: list[str], tmp_path: Path
) -> None:
    population: dict[str, object] = {"hyperparameters": {"lr": 1e-3}}
    if not overrides:
        population["algorithm"] = "my:Own"
    config, notices = load(tmp_path, population, overrides)
    assert config.populations["player"].hyperparameters == {"lr": 1e-3}
    assert notices == []


def test_elsewhere_nothing_is_an_alias(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown key populations\.player\.lr"):
        load(tmp_path, {"lr": 1e-3})


def test_a_value_is_read_as_yaml() -> None:
    assert parse_override("a.b=1e-4") == (("a", "b"), 0.0001)
    assert parse_override("a=") == (("a",), None)
    assert parse_override("a={x: [1]}") == (("a",), {"x": [1]})
    assert parse_override("a=b=c") == (("a",), "b=c")


@pytest.mark.parametrize("override", ["a", "=1", "a..b=1", ".a=1", "a.=1"])
def test_a_malformed_override_is_refused(override: str) -> None:
    with pytest.raises(ConfigError, match="must be KEY=VALUE") as error_info:
        parse_override(override)
    assert repr(override) in str(error_info.value)


def test_the_last_of_a_repeated_key_counts_and_levels_are_made() -> None:
    document = {"a": {"b": 1}, "n": None}
    overridden = apply_overrides(document, ["a.b=2", "a.b=3", "n.x=4", "new.deep.key=5"])
    assert overridden == {"a": {"b": 3}, "n": {"x": 4}, "new": {"deep": {"key": 5}}}
    assert document == {"a": {"b": 1}, "n": None}


def test_an_override_cannot_lead_into_a_value() -> None:
    with pytest.raises(ConfigError, match=r"seed\.x: seed is 1, which has no keys"):
        apply_overrides({"seed": 1}, ["seed.x=2"])
