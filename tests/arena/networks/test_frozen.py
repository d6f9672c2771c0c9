from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from arena.config import NetworkConfig
from arena.core import Actor, ActorInput
from arena.errors import CheckpointCorrupt
from arena.networks.actor_critic import ActorCritic, make_actor_critic
from arena.networks.frozen import FrozenPolicy
from tests.layouts import discrete, flat_observation

CPU = torch.device("cpu")
NETWORK = NetworkConfig(hidden_sizes=(8,))
OBSERVATION, ACTION = flat_observation(3), discrete(4)
Weights = dict[str, torch.Tensor]


def make(*, seed: int) -> ActorCritic:
    return make_actor_critic(NETWORK, observation=OBSERVATION, action=ACTION, seed=seed)


def freeze(weights: Weights, *, greedy: bool = False) -> FrozenPolicy:
    return FrozenPolicy.from_weights(
        NETWORK, weights, observation=OBSERVATION, action=ACTION, device=CPU, greedy=greedy
    )


def make_weights() -> Weights:
    network = make(seed=5)
    assert network.observation_normalizer is not None
    network.observation_normalizer.update(torch.tensor([[1.0, 2.0, 3.0], [5.0, 2.0, 1.0]]))
    network.head.weight.data.mul_(100.0)
    return network.state_dict()


def test_plays_like_the_network_it_was_made_from() -> None:
    weights = make_weights()
    live = make(seed=6)
    live.load_state_dict(weights)
    frozen = freeze(weights)
    observation = torch.randn(9, 3, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[True, False, True, True]]).expand(9, 4)
    assert torch.equal(frozen.logits(observation, mask), live.logits(observation, mask))
    assert frozen.network.action == ACTION


def test_samples_from_its_logits_and_greedy_takes_the_likeliest() -> None:
    weights = make_weights()
    actor: Actor = freeze(weights)
    observation = torch.tensor([[0.5, 1.0, 2.0]]).expand(50_000, 3)
    mask = torch.tensor([[True, True, False, True]]).expand(50_000, 4)
    action = actor.act(
        ActorInput(observation=observation, action_mask=mask),
        agent="anyone",
        generator=torch.Generator().manual_seed(0),
    ).action
    greedy = freeze(weights, greedy=True)
    probabilities = greedy.logits(observation[:1], mask[:1])[0].softmax(0)
    torch.testing.assert_close(
        torch.bincount(action, minlength=4) / 50_000, probabilities, rtol=0, atol=0.01
    )
    best = greedy.act(
        ActorInput(observation=observation[:7], action_mask=mask[:7]),
        agent="anyone",
        generator=torch.Generator(),
    ).action
    assert best.tolist() == [int(probabilities.argmax())] * 7


def test_shares_no_memory_with_the_weights_it_was_given() -> None:
    weights = make_weights()
    frozen = freeze(weights)
    observation = torch.ones(2, 3)
    before = frozen.logits(observation).clone()
    for tensor in weights.values():
        tensor.fill_(9.0)
    assert torch.equal(frozen.logits(observation), before)


def test_playing_moves_nothing() -> None:
    weights = make_weights()
    frozen = freeze(weights)
    observation = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    before = frozen.logits(observation).clone()
    generator = torch.Generator().manual_seed(1)
    for _ in range(5):
        frozen.act(ActorInput(observation=100.0 * observation), agent="anyone", generator=generator)
    assert torch.equal(frozen.logits(observation), before)


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda weights: weights.pop("trunk.0.bias"), "missing \\['trunk.0.bias'\\]"),
        (lambda weights: weights.update(extra=torch.zeros(1)), "unknown \\['extra'\\]"),
        (
            lambda weights: weights.update({"trunk.0.bias": torch.zeros(9)}),
            "trunk.0.bias must have shape \\[8\\], got \\[9\\]",
        ),
        (
            lambda weights: weights.update({"head.bias": torch.zeros(5).double()}),
            "head.bias must be float32",
        ),
        (
            lambda weights: weights.update({"head.bias": torch.full((5,), torch.nan)}),
            "head.bias must be finite",
        ),
        (lambda weights: weights.clear(), "weights must have the names of this architecture"),
    ],
)
def test_refuses_weights_of_another_architecture(
    spoil: Callable[[Weights], object], text: str
) -> None:
    weights = dict(make_weights())
    spoil(weights)
    with pytest.raises(CheckpointCorrupt, match=text):
        freeze(weights)
