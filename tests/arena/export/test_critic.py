"""A policy that learned with a centralized critic is exported as any other; its weights keep it."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
import onnx
import pytest
import torch
from safetensors.torch import load_file

from arena.config import NetworkConfig
from arena.core import ActorInput
from arena.export.card import read_card
from arena.export.champion import Champion
from arena.export.write import write_export
from tests.arena.export.conftest import make_policy
from tests.layouts import frozen_policy

pytestmark = pytest.mark.xdist_group("exports")

BOX = gymnasium.spaces.Box(low=-1.0, high=1.0, shape=(5,), dtype=np.float32)


@pytest.mark.slow
def test_the_graph_has_no_critic_and_the_weights_do(tmp_path: Path) -> None:
    network = NetworkConfig(hidden_sizes=(16,), critic="joint")
    actions = gymnasium.spaces.Discrete(6)
    card, playing = make_policy(BOX, actions=actions, mask=None, network=network)
    learned = {
        **playing,
        "critic.trunk.0.weight": torch.ones(16, 12),
        "critic.trunk.0.bias": torch.ones(16),
        "critic.head.weight": torch.ones(1, 16),
        "critic.head.bias": torch.ones(1),
        "critic_normalizer.mean": torch.zeros(12),
        "critic_normalizer.variance": torch.ones(12),
        "critic_normalizer.count": torch.ones(1),
    }
    directory = tmp_path / "champion"
    write_export(directory, card=card, weights=learned)
    assert load_file(directory / "policy.safetensors").keys() == learned.keys()
    graph = onnx.load(str(directory / "policy.onnx")).graph
    assert [given.name for given in graph.input] == ["observation"]
    # The values of a centralized critic need more input than an observation.
    assert "value" not in [given.name for given in graph.output]
    assert not read_card(directory).value
    shapes = [tuple(tensor.dims) for tensor in graph.initializer]
    assert (16, 12) not in shapes
    assert (12, 16) not in shapes
    champion, policy = Champion(directory), frozen_policy(card, learned, greedy=True)
    rows = np.random.default_rng(0).normal(size=(20, 5)).astype(np.float32)
    expected = policy.act(
        ActorInput(observation=torch.from_numpy(rows)), agent="", generator=torch.Generator()
    ).action
    assert [champion.act(row, agent="player_0") for row in rows] == expected.tolist()
