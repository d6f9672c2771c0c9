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


def make(
    algorithm: str, *, hyperparameters: dict[str, float], launch_directory: str = ""
) -> Algorithm:
    return make_algorithm(
        PopulationSetup(
            agents=("a",), network=NetworkConfig(hidden_sizes=(4,)), algorithm=algorithm
        ),
        observation_size=2,
        num_actions=3,
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


def test_refuses_a_value_out_of_range() -> None:
    with pytest.raises(ConfigError, match=r"hyperparameters\.gamma.*got 2"):
        make("ppo", hyperparameters={"gamma": 2.0})
