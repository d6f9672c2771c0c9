from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from arena.checkpoints.files import sha256_bytes
from arena.checkpoints.tensors import serialize
from arena.config import NetworkConfig
from arena.environment_spec import AgentSpec, ContinuousActions, MaskPlace
from arena.envs.spaces.agent_id_wrapper import observation_layout
from arena.envs.spaces.observations import describe
from arena.export.card import (
    Ancestor,
    Card,
    CardAction,
    CardEnvironment,
    CardLevel,
    CardObservation,
    CardRating,
    CardSeat,
    RecordLine,
)
from arena.export.write import Written, write_export
from arena.networks.actor_critic import make_actor_critic
from arena.spaces import ActionLayout
from arena.types import Digest, Seat

NETWORK = NetworkConfig(hidden_sizes=(16, 16))
BOARD = {"observation": np.zeros((6, 7, 2), dtype=np.int8), "action_mask": np.ones(7, np.int8)}
"""Observation of an empty board of Connect Four."""


Policy = tuple[Card, dict[str, torch.Tensor]]


def make_policy(
    observation: gymnasium.Space[Any],
    *,
    actions: gymnasium.Space[Any],
    mask: MaskPlace | None,
    network: NetworkConfig = NETWORK,
    continuous: ContinuousActions = "squashed",
) -> Policy:
    facts = AgentSpec(observation=describe(observation), action=describe(actions), mask=mask)
    return policy_of(facts, network=network, continuous=continuous)


def policy_of(
    facts: AgentSpec,
    *,
    network: NetworkConfig,
    continuous: ContinuousActions = "squashed",
    environment: str = "classic/connect_four-v3",
    agents: tuple[str, ...] = ("player_0", "player_1"),
) -> Policy:
    """A card and weights far from those of a fresh network."""
    policy = make_actor_critic(
        network,
        observation=observation_layout(facts, agents=agents, network=network),
        action=ActionLayout.from_json(facts.action, continuous=continuous),
        seed=5,
    )
    generator = torch.Generator().manual_seed(6)
    with torch.no_grad():
        for name, tensor in policy.state_dict().items():
            # Statistics must stay positive; the negative shift keeps the other outputs from
            # growing.
            shift = 0.0 if "normalizer" in name else -0.1
            tensor.add_(torch.rand(tensor.shape, generator=generator) * 0.2 + shift)
    weights = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
    seats = tuple(Seat(name=a, side=a, population="player", agents=(a,)) for a in agents)
    card = Card(
        created="2026-01-01T00:00:00+00:00",
        run="f0e1",
        population="player",
        player="player/p003",
        agents=agents,
        seats=tuple(CardSeat(name=seat.name, agents=seat.agents) for seat in seats),
        environment=CardEnvironment(
            id=environment,
            kwargs={},
            api="aec",
            agents=agents,
            agent_specs=dict.fromkeys(agents, facts),
            versions={"pettingzoo": "1.27.0"},
            sides={a: (a,) for a in agents},
            seats=seats,
            outcome="return",
            populations={"player": agents},
            continuous_actions=continuous,
        ),
        observation=CardObservation.from_space(facts.observation),
        action=CardAction.from_space(facts.action),
        mask=facts.mask,
        network=network,
        agent_steps=120_000,
        learner_updates=640,
        generation=2,
        weights_digest=sha256_bytes(serialize(weights)),
        rating=CardRating(rating=812.5, rating_low=790.0, rating_high=835.0),
        record=(
            RecordLine(
                opponent="bot:random",
                mode="greedy",
                seat="player_0",
                matches=10,
                distinct=9,
                wins=7,
                draws=1,
                losses=2,
                score=0.75,
                mean_return=0.5,
            ),
        ),
        hyperparameters={"learning_rate": 3e-4},
        lineage=(
            Ancestor(
                policy="player/p001", generation=1, agent_steps=60_000, weights=Digest("a" * 64)
            ),
        ),
        versions={"arena-league": "0.1.0"},
    )
    return card, weights


def level(number: int, card: Card, **values: Any) -> CardLevel:
    """A level of a card: its own weights, unless they are given."""
    given: dict[str, Any] = {"player": card.player, "graph": "policy.onnx", "temperature": 1.0}
    given |= {"agent_steps": 1, "weights_digest": card.weights_digest, "rating": 100.0 * number}
    given |= {"rating_low": 50.0 * number, "rating_high": 150.0 * number} | values
    return CardLevel(level=number, **given)


def boards(num_rows: int, *, seed: int = 1) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 2, (num_rows, 6, 7, 2)).astype(np.int8)
    masks = rng.integers(0, 2, (num_rows, 7)).astype(np.int8)
    masks[:, 2] = 1
    return rows, masks


@pytest.fixture(scope="session")
def board_policy() -> Policy:
    """Connect Four's spaces: a Box of planes, masks, 7 actions."""
    box = gymnasium.spaces.Box(low=0, high=1, shape=(6, 7, 2), dtype=np.int8)
    return make_policy(box, actions=gymnasium.spaces.Discrete(7), mask="observation")


@pytest.fixture(scope="session")
def number_policy() -> Policy:
    """A Discrete observation that starts at 3, no masks, actions that start at 10."""
    space = gymnasium.spaces.Discrete(16, start=3)
    return make_policy(space, actions=gymnasium.spaces.Discrete(4, start=10), mask=None)


@pytest.fixture(scope="session")
def board_export(board_policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Written[Card]:
    """Exporting takes seconds: tests share it and change nothing in it."""
    directory = tmp_path_factory.mktemp("board") / "champion"
    return write_export(directory, card=board_policy[0], weights=board_policy[1])


@pytest.fixture(scope="session")
def number_export(number_policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Written[Card]:
    directory = tmp_path_factory.mktemp("number") / "champion"
    return write_export(directory, card=number_policy[0], weights=number_policy[1])
