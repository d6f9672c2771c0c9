"""PPO with a memory: truncated backpropagation through time against a plain loop in float64.

The gradient is read from Adam: after its first step ``exp_avg`` is (1 - beta1) times the gradient.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from arena.config import NetworkConfig, PopulationSetup
from arena.core import ActorInput
from arena.errors import ConfigError
from arena.experience import Rollout, Sequences, Transitions
from arena.learning.acting import product_dtype
from arena.learning.algorithms import make_algorithm
from arena.learning.hyperparameters import PpoSettings
from arena.learning.ppo import Ppo
from arena.learning.ppo_loss import predict_all
from arena.learning.sequences import cut_into_sequences
from arena.spaces import ActionLayout
from tests.arena.samples import make_ppo, make_rollout
from tests.layouts import discrete, flat_observation

SIZE, WIDTH, NUM_ACTIONS, NUM_CHAINS, LENGTH, BETA1 = 5, 6, 3, 4, 9, 0.9
NUM_DECISIONS = NUM_CHAINS * LENGTH
Weights = dict[str, torch.Tensor]


def make(core: Any, settings: PpoSettings | None = None, **numbers: float) -> Ppo:
    return make_ppo(
        NetworkConfig(hidden_sizes=(8,), core=core, core_size=WIDTH, normalize_observations=False),
        size=SIZE,
        action=discrete(NUM_ACTIONS),
        numbers={"num_epochs": 1, "num_minibatches": 1, "adam_beta1": BETA1, **numbers},
        settings=settings or PpoSettings(normalize_returns=False),
        seed=3,
    )


def play(ppo: Ppo, *, max_length: int | None) -> Rollout:
    """Chains of nine decisions, side by side, that begin with something remembered."""
    generator = torch.Generator().manual_seed(1)
    observation = torch.randn(NUM_DECISIONS, SIZE, generator=generator)
    state = torch.randn(NUM_CHAINS, ppo.state_size, generator=generator)
    before, parts = [], []
    for rows in observation.view(LENGTH, NUM_CHAINS, SIZE):
        before.append(state)
        output = ppo.act(ActorInput(observation=rows, recurrent_state=state), generator=generator)
        assert output.recurrent_state is not None
        state = output.recurrent_state
        part = (output.action, output.log_prob, output.value)
        parts.append([tensor.clone() for tensor in part])
    action, log_prob, value = (torch.cat(part) for part in zip(*parts, strict=True))
    row = torch.arange(NUM_DECISIONS)
    successor = torch.where(row + NUM_CHAINS < NUM_DECISIONS, row + NUM_CHAINS, -1)
    rows = cut_into_sequences(successor, max_length=max_length)
    advantage = torch.randn(NUM_DECISIONS, generator=generator)
    return make_rollout(
        observation,
        action=action,
        log_prob=log_prob,
        value=value,
        advantage=advantage,
        return_=advantage + value,
        transitions=Transitions(
            reward=torch.ones(NUM_DECISIONS), successor=successor, next_value=torch.zeros(36)
        ),
        sequences=Sequences(rows=rows, state=torch.cat(before)[rows[:, 0]].clone()),
    )


def cell(core: str, weights: Weights, x: torch.Tensor, state: torch.Tensor) -> Any:
    w, u, b, c = (
        weights[f"core.recurrent.{name}"]
        for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    )
    given, own = w @ x + b, u @ state[:WIDTH] + c
    if core == "gru":
        r, z = torch.sigmoid(given + own)[: 2 * WIDTH].chunk(2)
        n = torch.tanh(given[2 * WIDTH :] + r * own[2 * WIDTH :])
        out = (1 - z) * n + z * state
        return out, out
    i, f, g, o = (given + own).chunk(4)
    kept = f.sigmoid() * state[WIDTH:] + i.sigmoid() * g.tanh()
    out = o.sigmoid() * kept.tanh()
    return out, torch.cat([out, kept])


def reference_gradient(core: str, weights: Weights, rollout: Rollout, clip: float) -> Weights:
    """One decision after the other; gradients flow back to where its sequence begins."""
    assert rollout.sequences is not None
    leaves = {
        name: tensor.double().requires_grad_()
        for name, tensor in weights.items()
        if "normalizer" not in name
    }
    log_probs, values = torch.zeros(2, NUM_DECISIONS, dtype=torch.float64).unbind()
    entropies = []
    for rows, stored in zip(rollout.sequences.rows, rollout.sequences.state, strict=True):
        state = stored.double()
        for row in rows[rows >= 0].tolist():
            hidden = leaves["trunk.0.weight"] @ rollout.observation[row].double()
            features = (hidden + leaves["trunk.0.bias"]).relu()
            out, state = cell(core, leaves, features, state)
            outputs = leaves["head.weight"] @ out + leaves["head.bias"]
            log_p = functional.log_softmax(outputs[:-1], dim=0)
            log_probs = log_probs.index_put((torch.tensor(row),), log_p[rollout.action[row]])
            values = values.index_put((torch.tensor(row),), outputs[-1])
            entropies.append(-(log_p.exp() * log_p).sum())
    advantage = rollout.advantage.double()
    advantage = (advantage - advantage.mean()) / advantage.std(correction=0)
    ratio = (log_probs - rollout.log_prob.double()).exp()
    surrogate = torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
    errors = (values - rollout.return_.double()) ** 2
    loss = -surrogate.mean() + 0.5 * errors.mean() - 0.01 * torch.stack(entropies).mean()
    gradients = torch.autograd.grad(loss, list(leaves.values()))
    return dict(zip(leaves, gradients, strict=True))


@pytest.mark.parametrize("max_length", [None, 4])
@pytest.mark.parametrize("core", ["gru", "lstm"])
def test_an_update_follows_the_gradient_of_the_plain_loop(
    core: str, max_length: int | None
) -> None:
    ppo = make(core, max_grad_norm=1e6)
    rollout = play(ppo, max_length=max_length)
    expected = reference_gradient(core, ppo.weights(), rollout, 0.2)
    metrics = ppo.update(rollout, generator=torch.Generator())
    # The policy that played is the one that is unrolled.
    assert metrics["policy/kl"] == pytest.approx(0.0, abs=1e-6)
    state = ppo.optimizer_state()
    for name, gradient in expected.items():
        found = state[f"exp_avg.{name}"] / (1.0 - BETA1)
        assert float(gradient.norm()) > 0.0
        torch.testing.assert_close(found, gradient.float(), rtol=1e-3, atol=1e-6)


def test_where_the_gradient_is_cut_makes_a_difference() -> None:
    weights = make("gru").weights()
    name = "core.recurrent.weight_hh_l0"
    whole, cut = (
        reference_gradient("gru", weights, play(make("gru"), max_length=length), 0.2)[name]
        for length in (None, 4)
    )
    assert not torch.allclose(whole, cut, rtol=0.01)


def test_minibatches_are_of_whole_sequences_and_all_rows_are_learned_from() -> None:
    ppo = make("gru", num_minibatches=3, num_epochs=2)
    ppo.update(play(ppo, max_length=5), generator=torch.Generator().manual_seed(1))
    assert ppo.learner_updates == 6


@pytest.mark.parametrize("num_parts", [1, 3, 50])
def test_predictions_are_in_the_order_of_the_rollout(num_parts: int) -> None:
    ppo = make("lstm")
    rollout = play(ppo, max_length=4)
    parameters, value = predict_all(
        ppo._network, rollout.observation, rollout.sequences, num_parts=num_parts
    )
    torch.testing.assert_close(value, rollout.value, rtol=0, atol=1e-5)
    log_prob = parameters.log_softmax(1).gather(1, rollout.action[:, None])[:, 0]
    torch.testing.assert_close(log_prob, rollout.log_prob, rtol=0, atol=1e-5)


def test_vtrace_of_the_policy_that_played_is_on_policy() -> None:
    settings = PpoSettings(advantages="vtrace", normalize_returns=False)
    ppo = make("gru", settings, magnet_coef=0.1, gamma=1.0, gae_lambda=1.0)
    rollout = play(ppo, max_length=4)
    valued = ppo._vtrace_targets(rollout, rollout.observation)
    # Undiscounted, the target is the number of decisions that are left.
    left = (LENGTH - torch.arange(LENGTH)).repeat_interleave(NUM_CHAINS)
    torch.testing.assert_close(valued.return_, left.float(), rtol=0, atol=1e-3)
    metrics = ppo.update(rollout, generator=torch.Generator())
    assert metrics["policy/magnet_kl"] == pytest.approx(0.0, abs=1e-6)


def test_a_memory_is_restored_with_all_else() -> None:
    ppo, other = make("lstm", ema_decay=0.5), make("lstm", ema_decay=0.5)
    ppo.update(play(ppo, max_length=None), generator=torch.Generator())
    other.load(ppo.weights(), ppo.optimizer_state(), learner_updates=ppo.learner_updates)
    rollout = play(ppo, max_length=None)
    for one in (ppo, other):
        one.update(rollout, generator=torch.Generator())
    first, second = ppo.weights(), other.weights()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_memories_are_float32_unless_asked() -> None:
    wide = NetworkConfig(hidden_sizes=(128,), core="gru")
    device = torch.device("cpu")
    assert product_dtype("auto", network=wide, device=device) == torch.float32
    assert product_dtype("bfloat16", network=wide, device=device) == torch.bfloat16


class Forgetful(Ppo):
    """An algorithm that says nothing of a state."""

    state_size = 0


def test_an_algorithm_without_memory_refuses_a_core() -> None:
    action: ActionLayout = discrete(NUM_ACTIONS)
    setup = PopulationSetup(
        agents=("a",), network=NetworkConfig(core="gru"), algorithm=f"{__name__}:Forgetful"
    )
    with pytest.raises(ConfigError, match="core must be none"):
        make_algorithm(
            setup,
            observation=flat_observation(SIZE),
            action=action,
            hyperparameters={},
            device=torch.device("cpu"),
            precision="float32",
            seed=1,
            launch_directory=".",
        )
