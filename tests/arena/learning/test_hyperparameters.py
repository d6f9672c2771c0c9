from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.errors import ConfigError
from arena.learning.hyperparameters import (
    PpoHyperparameters,
    PpoSettings,
    coerce_hyperparameters,
    hyperparameter_model,
    make_settings,
)


def test_names_and_defaults_are_those_of_the_interface() -> None:
    assert PpoHyperparameters().model_dump() == {
        "learning_rate": 3e-4,
        "clip_coef": 0.2,
        "entropy_coef": 0.01,
        "value_coef": 0.5,
        "gamma": 0.99,
        "gae_lambda": 0.95,
        "max_grad_norm": 0.5,
        "target_kl": None,
        "num_epochs": 4,
        "num_minibatches": 4,
        "rollout_length": 32,
        "adam_beta1": 0.9,
        "adam_beta2": 0.999,
        "adam_eps": 1e-5,
        "desired_kl": None,
        "value_clip": None,
        "magnet_coef": 0.0,
        "magnet_rate": 0.01,
        "kl_coef": 0.0,
        "ema_decay": 0.0,
        "rho_bar": 1.0,
        "c_bar": 1.0,
    }


def test_coerce_rounds_integral_values_and_fills_in_defaults() -> None:
    values = coerce_hyperparameters(
        PpoHyperparameters, {"rollout_length": 38.4, "num_epochs": 2.6, "learning_rate": 1}
    )
    assert (values["rollout_length"], values["num_epochs"], values["learning_rate"]) == (38, 3, 1.0)
    assert type(values["rollout_length"]) is int
    assert type(values["learning_rate"]) is float
    without_value = {"target_kl", "desired_kl", "value_clip"}
    assert set(values) == set(PpoHyperparameters.model_fields) - without_value
    assert coerce_hyperparameters(PpoHyperparameters, values) == values


@given(target_kl=st.floats(1e-6, 10.0), gamma=st.floats(0.0, 1.0))
def test_coerce_keeps_real_values_exactly(target_kl: float, gamma: float) -> None:
    values = coerce_hyperparameters(PpoHyperparameters, {"target_kl": target_kl, "gamma": gamma})
    assert (values["target_kl"], values["gamma"]) == (target_kl, gamma)


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("gamma", 1.01, "must be at most 1"),
        ("learning_rate", 0.0, "greater than 0"),
        ("learning_rate", math.nan, "finite"),
        ("num_epochs", 0.4, "must be at least 1"),
        ("num_epochs", math.inf, "finite"),
        ("num_minibatches", math.nan, "finite"),
        ("adam_beta1", 1.0, "less than 1"),
        ("adam_beta2", 1.0, "less than 1"),
        ("adam_eps", 0.0, "greater than 0"),
        ("target_kl", 0.0, "greater than 0"),
        ("desired_kl", 0.0, "greater than 0"),
    ],
)
def test_coerce_names_key_rule_and_value(name: str, value: float, rule: str) -> None:
    with pytest.raises(ConfigError) as caught:
        coerce_hyperparameters(PpoHyperparameters, {name: value})
    text = str(caught.value)
    assert f"hyperparameters.{name}" in text
    assert rule in text
    assert repr(round(value) if value == 0.4 else value) in text


def test_coerce_names_the_nearest_key() -> None:
    with pytest.raises(ConfigError, match=r"hyperparameters\.learnin_rate.*'learning_rate'"):
        coerce_hyperparameters(PpoHyperparameters, {"learnin_rate": 1e-3})


def test_the_model_of_ppo_needs_no_resolving() -> None:
    assert hyperparameter_model("ppo", launch_directory="") is PpoHyperparameters


def test_the_model_of_a_users_algorithm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "their_learning_rules.py").write_text(
        "from arena.config import Model\n"
        "class Theirs:\n"
        "    class Hyperparameters(Model):\n"
        "        speed: float = 2.0\n"
        "class Forgetful: pass\n"
    )
    model = hyperparameter_model("their_learning_rules:Theirs", launch_directory=str(tmp_path))
    assert coerce_hyperparameters(model, {}) == {"speed": 2.0}
    with pytest.raises(ConfigError, match="class attribute Hyperparameters"):
        hyperparameter_model("their_learning_rules:Forgetful", launch_directory=str(tmp_path))


def test_settings_are_completed() -> None:
    assert make_settings("ppo", {}, launch_directory="") == PpoSettings()
    settings = make_settings("ppo", {"advantages": "vtrace"}, launch_directory="")
    assert settings == PpoSettings(advantages="vtrace", normalize_returns=True)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"advantages": "td"}, r"algorithm_settings\.advantages: .*'gae' or 'vtrace', got 'td'"),
        ({"advantage": "gae"}, r"algorithm_settings\.advantage: is no key .*, got 'gae'"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make_settings("ppo", settings, launch_directory="")


def test_settings_of_a_users_algorithm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "their_learning_settings.py").write_text(
        "from arena.config import Model\n"
        "class Theirs:\n"
        "    class Settings(Model):\n"
        "        double: bool = True\n"
        "class Plain: pass\n"
        "class Wrong:\n"
        "    Settings = 3\n"
    )
    directory = str(tmp_path)
    theirs = make_settings("their_learning_settings:Theirs", {}, launch_directory=directory)
    assert theirs.model_dump() == {"double": True}
    plain = make_settings("their_learning_settings:Plain", {}, launch_directory=directory)
    assert plain.model_dump() == {}
    with pytest.raises(
        ConfigError, match=r"algorithm_settings\.double: is no key that is known here, got True"
    ):
        make_settings("their_learning_settings:Plain", {"double": True}, launch_directory=directory)
    with pytest.raises(ConfigError, match="class attribute Settings"):
        make_settings("their_learning_settings:Wrong", {}, launch_directory=directory)
