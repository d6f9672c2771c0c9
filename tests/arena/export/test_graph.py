"""Graphs in torch: the same as in onnxruntime, and players by them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from arena.codec import plain
from arena.config import NetworkConfig
from arena.export.card import Card
from arena.export.champion import Champion, GraphPlayer
from arena.export.graph import TorchSession
from arena.export.write import Written
from arena.networks.actor_critic import ActorCritic
from tests.arena.export.conftest import make_policy
from tests.layouts import frozen_policy

pytestmark = pytest.mark.xdist_group("exports")

Policy = tuple[Card, dict[str, torch.Tensor]]
BOX = gymnasium.spaces.Box(low=-1.0, high=1.0, shape=(5,), dtype=np.float32)


def by_torch(policy: Policy) -> tuple[GraphPlayer, ActorCritic]:
    card, weights = policy
    network = frozen_policy(card, weights).network
    session = TorchSession(network, layout=card.observation_layout, has_mask=card.mask is not None)
    return GraphPlayer(plain(card), [session]), network


def test_it_plays_as_the_export_does(board_policy: Policy, board_export: Written[Card]) -> None:
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 2, (64, 6, 7, 2)).astype(np.int8)
    masks = rng.random((64, 7)) < 0.5
    masks[:, 1] = True
    player, _ = by_torch(board_policy)
    champion = Champion(board_export.directory)
    assert player.act(rows, masks).tolist() == champion.act(rows, masks).tolist()
    for seed in range(3):
        drawn = [one.act(rows, masks, sample=True, seed=seed) for one in (player, champion)]
        assert drawn[0].tolist() == drawn[1].tolist()
    np.testing.assert_allclose(player.value(rows), champion.value(rows), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        player.probabilities(rows, masks), champion.probabilities(rows, masks), rtol=1e-5
    )


@pytest.mark.parametrize("core", ["gru", "lstm"])
@pytest.mark.parametrize("separate", [False, True])
def test_episodes_of_a_batch_go_on_side_by_side(core: Any, separate: bool) -> None:
    network = NetworkConfig(hidden_sizes=(8,), core=core, core_size=4, separate_value=separate)
    policy = make_policy(BOX, actions=gymnasium.spaces.Discrete(6), mask=None, network=network)
    together, module = by_torch(policy)
    alone = [by_torch(policy)[0] for _ in range(3)]
    rows = np.random.default_rng(2).uniform(-1, 1, (4, 2, 3, 5)).astype(np.float32)
    states = {agent: torch.zeros(3, module.state_size) for agent in together.agents}
    for step in rows:
        for agent, seen in zip(together.agents, step, strict=True):
            with torch.inference_mode():
                parameters, value, state = module.step(
                    module.normalize_observation(torch.from_numpy(seen)), states[agent]
                )
                states[agent] = state
                value = module.return_normalizer.denormalize(value)
            # Twice: they leave the state as it is.
            for _ in range(2):
                values = together.value(seen, agent=agent)
                np.testing.assert_allclose(values, value, rtol=1e-5, atol=1e-6)
                chances = together.probabilities(seen, agent=agent)
                np.testing.assert_allclose(chances, parameters.softmax(dim=1), rtol=1e-5)
            ones = [one.act(row, agent=agent) for one, row in zip(alone, seen, strict=True)]
            assert together.act(seen, agent=agent).tolist() == ones
    with pytest.raises(ValueError, match="rows of the one before, 3, until reset, got 2"):
        together.act(rows[0, 0, :2], agent=together.agents[0])
    together.reset()
    assert together.act(rows[0, 0, :2], agent=together.agents[0]).shape == (2,)


def test_a_centralized_critic_gives_no_value() -> None:
    network = NetworkConfig(hidden_sizes=(8,), critic="joint")
    policy = make_policy(BOX, actions=gymnasium.spaces.Discrete(6), mask=None, network=network)
    player, module = by_torch(policy)
    assert not module.has_value
    assert not player.has_value
    with pytest.raises(ValueError, match="no value"):
        player.value(np.zeros(5))
