"""PPO with a centralized critic: its gradient written down plainly, checkpoints, and who plays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn import functional

from arena.config import NetworkConfig, PopulationSetup
from arena.core import ActorInput, Algorithm
from arena.errors import CheckpointCorrupt, ConfigError
from arena.experience import Rollout
from arena.learning.algorithms import make_algorithm
from arena.learning.hyperparameters import PpoHyperparameters, PpoSettings
from arena.learning.ppo import Ppo
from arena.networks.frozen import FrozenPolicy
from arena.spaces import ActionLayout, ObservationLayout
from tests.arena.learning.plain_ppo import (
    assert_update_follows,
    leaves_of,
    plain_gradient,
    play_chains,
)
from tests.arena.samples import CPU, make_ppo
from tests.layouts import discrete, flat_observation

SIZE, WIDE, NUM_ACTIONS, NUM_CHAINS, LENGTH = 5, 11, 3, 6, 8
NUM_DECISIONS = NUM_CHAINS * LENGTH
HYPERPARAMETERS = PpoHyperparameters(
    num_epochs=1, num_minibatches=1, entropy_coef=0.03, value_coef=0.7, max_grad_norm=0.4
)


def network(core: Any = "none", **settings: Any) -> NetworkConfig:
    return NetworkConfig.model_validate(
        {"hidden_sizes": (8,), "core": core, "core_size": 6, "critic": "joint", **settings}
    )


def make(
    config: NetworkConfig,
    numbers: PpoHyperparameters = HYPERPARAMETERS,
    settings: PpoSettings | None = None,
    seed: int = 3,
) -> Ppo:
    return make_ppo(
        config,
        size=SIZE,
        action=discrete(NUM_ACTIONS),
        numbers=numbers,
        settings=settings or PpoSettings(normalize_returns=False),
        seed=seed,
        critic_input=flat_observation(WIDE),
    )


def play(ppo: Ppo, seed: int = 1) -> Rollout:
    """Chains of decisions side by side."""
    return play_chains(
        ppo,
        size=SIZE,
        num_chains=NUM_CHAINS,
        length=LENGTH,
        max_length=4,
        shift=3.0,
        wide=WIDE,
        noise=0.4,
        seed=seed,
    )


def features_of(ppo: Ppo, weights: dict[str, torch.Tensor], rollout: Rollout) -> torch.Tensor:
    """What the policy's head reads: its hidden layer, or what its core makes of that."""
    seen = rollout.observation.double()
    hidden = functional.linear(seen, weights["trunk.0.weight"], weights["trunk.0.bias"]).relu()
    if rollout.sequences is None:
        return hidden
    cell = torch.nn.GRUCell(8, 6, dtype=torch.float64)
    parameters = {
        name: weights[f"core.recurrent.{name}_l0"]
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    }
    outputs = [torch.zeros(6, dtype=torch.float64)] * NUM_DECISIONS
    for rows, stored in zip(rollout.sequences.rows, rollout.sequences.state, strict=True):
        state = stored.double()
        for row in rows[rows >= 0].tolist():
            state = torch.func.functional_call(cell, parameters, (hidden[row], state))
            outputs[row] = state
    return torch.stack(outputs)


@pytest.mark.parametrize("core", ["none", "gru"])
def test_an_update_follows_the_gradient_of_the_plain_loss(core: str) -> None:
    ppo = make(network(core, normalize_observations=False))
    rollout = play(ppo)
    weights = leaves_of(ppo.weights())
    features = features_of(ppo, weights, rollout)
    logits = functional.linear(features, weights["head.weight"], weights["head.bias"])
    assert rollout.critic_input is not None
    judged = rollout.critic_input.double()
    if core == "gru":
        # The critic reads the recurrent state without a gradient through it.
        judged = torch.cat([judged, features.detach()], dim=1)
    hidden = functional.linear(
        judged, weights["critic.trunk.0.weight"], weights["critic.trunk.0.bias"]
    ).relu()
    value = functional.linear(
        hidden, weights["critic.head.weight"], weights["critic.head.bias"]
    ).squeeze(1)
    torch.testing.assert_close(rollout.value, value.detach().float(), rtol=1e-4, atol=1e-5)
    log_p = logits.log_softmax(dim=1)
    log_prob = log_p.gather(1, rollout.action[:, None]).squeeze(1)
    expected = plain_gradient(
        weights,
        rollout,
        log_prob=log_prob,
        entropy=-(log_p.exp() * log_p).sum(dim=1),
        value=value,
        numbers=HYPERPARAMETERS,
    )
    metrics = assert_update_follows(ppo, rollout, expected)
    assert 0.1 < metrics["policy/clip_fraction"] < 0.9


def test_what_the_policy_does_does_not_depend_on_what_the_critic_reads() -> None:
    ppo = make(network("gru"))
    generator = torch.Generator().manual_seed(0)
    observation = torch.randn(7, SIZE, generator=generator)
    state = torch.randn(7, ppo.state_size, generator=generator)
    one, other = (
        ppo.act(
            ActorInput(
                observation=observation,
                critic_input=torch.full((7, WIDE), number),
                recurrent_state=state,
            ),
            generator=torch.Generator().manual_seed(1),
        )
        for number in (1.0, -1.0)
    )
    assert torch.equal(one.action, other.action)
    assert torch.equal(one.log_prob, other.log_prob)
    assert not torch.equal(one.value, other.value)
    assert one.recurrent_state is not None
    assert other.recurrent_state is not None
    assert torch.equal(one.recurrent_state, other.recurrent_state)


@pytest.mark.parametrize("core", ["none", "lstm"])
def test_its_input_has_statistics_of_its_own_and_a_checkpoint_has_them(core: str) -> None:
    config = network(core)
    ppo = make(config)
    rollout = play(ppo)
    assert rollout.critic_input is not None
    ppo.update(rollout, generator=torch.Generator().manual_seed(5))
    weights, optimizer = ppo.weights(), ppo.optimizer_state()
    for name, rows in (("observation", rollout.observation), ("critic", rollout.critic_input)):
        torch.testing.assert_close(weights[f"{name}_normalizer.mean"], rows.mean(dim=0))
        assert float(weights[f"{name}_normalizer.count"]) == NUM_DECISIONS
    other = make(config, seed=4)
    other.load(weights, optimizer, learner_updates=ppo.learner_updates)
    again = play(ppo, seed=2)
    for trained in (ppo, other):
        trained.update(again, generator=torch.Generator().manual_seed(6))
    assert ppo.weights().keys() == other.weights().keys()
    for name, tensor in ppo.weights().items():
        assert torch.equal(tensor, other.weights()[name]), name
    for name, tensor in ppo.optimizer_state().items():
        assert torch.equal(tensor, other.optimizer_state()[name]), name


def test_the_critic_and_its_statistics_must_be_in_a_checkpoint() -> None:
    ppo = make(network())
    weights = {k: v for k, v in ppo.weights().items() if not k.startswith("critic")}
    with pytest.raises(CheckpointCorrupt, match="missing"):
        ppo.load(weights, None, learner_updates=0)


@pytest.mark.parametrize("core", ["none", "gru"])
def test_who_plays_needs_no_critic(core: str) -> None:
    """A frozen policy has none of it, and does what the one that learns does."""
    config = network(core)
    ppo = make(config)
    rollout = play(ppo)
    ppo.update(rollout, generator=torch.Generator().manual_seed(5))
    frozen = FrozenPolicy.from_weights(
        config,
        ppo.weights(),
        observation=flat_observation(SIZE),
        action=discrete(NUM_ACTIONS),
        device=CPU,
    )
    names = frozen.network.state_dict().keys()
    assert not [name for name in names if name.startswith("critic")]
    observation, draws = rollout.observation, (torch.Generator(), torch.Generator())
    state = torch.zeros(NUM_DECISIONS, ppo.state_size) if core == "gru" else None
    inputs = ActorInput(observation=observation, recurrent_state=state)
    expected = ppo.act(
        replace(inputs, critic_input=torch.zeros(NUM_DECISIONS, WIDE)),
        generator=draws[0].manual_seed(3),
    )
    found = frozen.act(inputs, agent="", generator=draws[1].manual_seed(3))
    if state is None:
        assert found.recurrent_state is None
    else:
        assert expected.recurrent_state is not None
        torch.testing.assert_close(found.recurrent_state, expected.recurrent_state)
    assert torch.equal(found.action, expected.action)
    if core == "none":
        with pytest.raises(ValueError, match="only plays"):
            frozen.network.value(observation)


def test_values_need_their_rows() -> None:
    ppo = make(network())
    with pytest.raises(ValueError, match="needs its input"):
        ppo.value(ActorInput(observation=torch.zeros(1, SIZE)))


def test_vtrace_a_magnet_and_an_average_have_a_critic_too() -> None:
    hyperparameters = HYPERPARAMETERS.model_copy(
        update={"magnet_coef": 0.1, "magnet_rate": 0.1, "ema_decay": 0.9, "num_minibatches": 3}
    )
    for core in ("none", "gru"):
        ppo = make(network(core), hyperparameters, PpoSettings(advantages="vtrace"))
        metrics = ppo.update(play(ppo), generator=torch.Generator().manual_seed(0))
        assert metrics["gradient/skipped"] == 0.0
        assert ppo.learner_updates == 3
        assert "live.critic.head.weight" in ppo.optimizer_state()
        assert "magnet.critic.head.weight" in ppo.optimizer_state()


def test_a_critic_of_its_own_draws_the_policy_that_there_was() -> None:
    """The same seed gives the same policy, whatever judges it."""
    plain = make(NetworkConfig(hidden_sizes=(8,), separate_value=True)).weights()
    judged = make(network()).weights()
    for name in ("trunk.0.weight", "head.weight"):
        assert torch.equal(plain[name], judged[name])


class Decentralized(Ppo):
    """An algorithm that was written for values of observations."""

    def __init__(
        self,
        network: NetworkConfig,
        *,
        observation: ObservationLayout,
        action: ActionLayout,
        hyperparameters: PpoHyperparameters,
        settings: PpoSettings,
        device: torch.device,
        precision: str,
        seed: int,
    ) -> None:
        raise AssertionError("refused before it is made")


def test_an_algorithm_without_such_values_is_refused() -> None:
    name = f"{__name__}:Decentralized"
    setup = PopulationSetup(agents=("a",), network=network(), algorithm=name)
    with pytest.raises(ConfigError, match=rf"network.critic must be own with algorithm {name}"):
        make_algorithm(
            setup,
            observation=flat_observation(SIZE),
            action=discrete(NUM_ACTIONS),
            hyperparameters={},
            device=CPU,
            precision="float32",
            seed=0,
            launch_directory=".",
            critic_input=flat_observation(WIDE),
        )


def test_ppo_says_that_it_can() -> None:
    assert isinstance(make(network()), Algorithm)
    assert make(network()).critic_size == WIDE
    assert make(NetworkConfig(hidden_sizes=(8,))).critic_size == 0
