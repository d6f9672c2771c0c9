from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from arena.config import NetworkConfig, PopulationSetup
from arena.core import Algorithm
from arena.errors import ConfigError
from arena.learning.algorithms import make_algorithm
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


def test_the_seed_decides_the_weights() -> None:
    first, second = (make("ppo", hyperparameters={}).weights() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


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
