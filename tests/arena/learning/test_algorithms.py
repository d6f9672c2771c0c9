from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from arena.config import NetworkConfig, PopulationSetup
from arena.core import Algorithm
from arena.errors import ConfigError
from arena.learning.algorithms import make_algorithm
from arena.learning.hyperparameters import (
    PpoHyperparameters,
    PpoSettings,
    coerce_hyperparameters,
    hyperparameter_model,
    make_settings,
)
from arena.learning.ppo import Ppo
from tests.layouts import discrete, flat_observation

NETWORK = NetworkConfig(hidden_sizes=(4,))


def make(
    algorithm: str,
    *,
    hyperparameters: dict[str, float],
    settings: dict[str, object] | None = None,
    launch_directory: str = "",
) -> Algorithm:
    return make_algorithm(
        PopulationSetup(
            agents=("a",),
            network=NETWORK,
            algorithm=algorithm,
            algorithm_settings=settings or {},
        ),
        observation=flat_observation(2),
        action=discrete(3),
        hyperparameters=hyperparameters,
        device=torch.device("cpu"),
        precision="auto",
        seed=7,
        launch_directory=launch_directory,
    )


def test_makes_ppo_with_rounded_hyperparameters() -> None:
    algorithm = make(
        "ppo", hyperparameters={"rollout_length": 38.4, "gamma": 0.5, "gae_lambda": 0.25}
    )
    assert isinstance(algorithm, Ppo)
    assert algorithm.rollout_length == 38
    assert (algorithm.gamma, algorithm.gae_lambda) == (0.5, 0.25)
    assert algorithm.learner_updates == 0


def test_makes_a_users_algorithm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "their_ppo.py").write_text(
        "from arena.learning.hyperparameters import PpoHyperparameters\n"
        "from arena.learning.ppo import Ppo\n"
        "class Impatient(Ppo):\n"
        "    class Hyperparameters(PpoHyperparameters):\n"
        "        gamma: float = 0.25\n"
    )
    algorithm = make("their_ppo:Impatient", hyperparameters={}, launch_directory=str(tmp_path))
    assert type(algorithm).__name__ == "Impatient"
    assert algorithm.gamma == 0.25


def test_says_what_a_users_algorithm_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "their_stub.py").write_text(
        "from arena.config import Model\n"
        "class Stub:\n"
        "    class Hyperparameters(Model): ...\n"
        "    gamma = gae_lambda = 1.0\n"
        "    def __init__(self, network, **_): ...\n"
        "    def act(self, inputs, *, generator): ...\n"
    )
    with pytest.raises(
        ConfigError, match=r"inherit from it.* no state_size, critic_size,"
    ) as error:
        make("their_stub:Stub", hyperparameters={}, launch_directory=str(tmp_path))
    assert "update" in str(error.value)
    assert "gamma" not in str(error.value)


def test_settings_reach_the_algorithm() -> None:
    assert not make("ppo", hyperparameters={}).needs_transitions
    algorithm = make("ppo", hyperparameters={}, settings={"advantages": "vtrace"})
    assert algorithm.needs_transitions
    with pytest.raises(ConfigError, match=r"algorithm_settings\.advantages"):
        make("ppo", hyperparameters={}, settings={"advantages": "none"})


def test_refuses_a_value_out_of_range() -> None:
    with pytest.raises(ConfigError, match=r"hyperparameters\.gamma.*got 2"):
        make("ppo", hyperparameters={"gamma": 2.0})


def test_settings_among_a_policys_hyperparameters_are_its_own() -> None:
    setup = PopulationSetup(
        agents=("a",),
        network=NetworkConfig(hidden_sizes=(4,)),
        algorithm_settings={"advantages": "gae"},
    )
    for advantages, needs_transitions in (("vtrace", True), ("gae", False)):
        algorithm = make_algorithm(
            setup,
            observation=flat_observation(2),
            action=discrete(2),
            hyperparameters={"learning_rate": 1e-3, "advantages": advantages},
            device=torch.device("cpu"),
            precision="float32",
            seed=1,
            launch_directory=".",
        )
        assert algorithm.needs_transitions == needs_transitions


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
