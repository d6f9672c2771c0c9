"""PPO written down plainly, in float64, and rollouts of which one update is compared with it.

The gradient is read from Adam: after its first step ``exp_avg`` is (1 - beta1) times the gradient.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from arena.core import ActorInput
from arena.experience import Rollout, Sequences, Transitions
from arena.learning.hyperparameters import PpoHyperparameters
from arena.learning.ppo import Ppo
from arena.learning.sequences import cut_into_sequences
from tests.arena.samples import make_rollout

Weights = dict[str, torch.Tensor]


def play_chains(
    ppo: Ppo,
    *,
    size: int,
    num_chains: int,
    length: int,
    max_length: int | None = None,
    shift: float = 0.0,
    wide: int = 0,
    noise: float = 0.0,
    seed: int = 1,
) -> Rollout:
    """Chains of decisions, side by side, that begin with something remembered.

    Args:
        shift: Mean of what is observed.
        wide: Numbers that a centralized critic reads.
        noise: By how much the policy that played was another one, so that some ratios are clipped.
    """
    generator, number = torch.Generator().manual_seed(seed), num_chains * length
    observation = shift + torch.randn(number, size, generator=generator)
    judged = 2.0 * torch.randn(number, wide, generator=generator) - 1.0 if wide else None
    state = None
    if ppo.state_size:
        state = torch.randn(num_chains, ppo.state_size, generator=generator)
    before, parts = [], []
    for first in range(0, number, num_chains):
        rows = slice(first, first + num_chains)
        before.append(state)
        inputs = ActorInput(
            observation=observation[rows],
            critic_input=None if judged is None else judged[rows],
            recurrent_state=state,
        )
        output = ppo.act(inputs, generator=generator)
        state, part = output.recurrent_state, (output.action, output.log_prob, output.value)
        parts.append([tensor.clone() for tensor in part])
    action, log_prob, value = (torch.cat(part) for part in zip(*parts, strict=True))
    row = torch.arange(number)
    successor = torch.where(row + num_chains < number, row + num_chains, -1)
    sequences = None
    if ppo.state_size:
        table = cut_into_sequences(successor, max_length=max_length)
        states = torch.cat([state for state in before if state is not None])
        sequences = Sequences(rows=table, state=states[table[:, 0]].clone())
    if noise:
        log_prob = log_prob + noise * torch.randn(number, generator=generator)
    advantage = torch.randn(number, generator=generator)
    return make_rollout(
        observation,
        action=action,
        log_prob=log_prob,
        value=value,
        advantage=advantage,
        return_=advantage + value,
        transitions=Transitions(
            reward=torch.ones(number), successor=successor, next_value=torch.zeros(number)
        ),
        sequences=sequences,
        critic_input=judged,
    )


def leaves_of(weights: Mapping[str, torch.Tensor]) -> Weights:
    """The weights that are learned, as leaves of a gradient."""
    return {
        name: tensor.double().requires_grad_()
        for name, tensor in weights.items()
        if "normalizer" not in name
    }


def plain_gradient(
    leaves: Weights,
    rollout: Rollout,
    *,
    log_prob: torch.Tensor,
    entropy: torch.Tensor,
    value: torch.Tensor,
    numbers: PpoHyperparameters,
) -> Weights:
    """The clipped gradient of PPO's loss, by name of parameter; of each decision: [D]."""
    ratio = (log_prob - rollout.log_prob.double()).exp()
    advantage = rollout.advantage.double()
    advantage = (advantage - advantage.mean()) / advantage.std(correction=0)
    clip = numbers.clip_coef
    surrogate = torch.min(ratio * advantage, ratio.clamp(1.0 - clip, 1.0 + clip) * advantage)
    target, old = rollout.return_.double(), rollout.value.double()
    errors = (value - target) ** 2
    if numbers.value_clip is not None:
        near = torch.max(torch.min(value, old + numbers.value_clip), old - numbers.value_clip)
        errors = torch.max(errors, (near - target) ** 2)
    loss = (
        -surrogate.mean()
        + numbers.value_coef * errors.mean()
        - numbers.entropy_coef * entropy.mean()
    )
    gradients = torch.autograd.grad(loss, list(leaves.values()))
    norm = torch.cat([gradient.flatten() for gradient in gradients]).norm()
    scale = min(1.0, numbers.max_grad_norm / float(norm))
    return {name: scale * gradient for name, gradient in zip(leaves, gradients, strict=True)}


def assert_update_follows(
    ppo: Ppo, rollout: Rollout, expected: Weights, *, rtol: float = 2e-3, atol: float = 2e-5
) -> dict[str, float]:
    """Compare an update's gradient with another one, and return its metrics."""
    metrics = ppo.update(rollout, generator=torch.Generator())
    state, beta1 = ppo.optimizer_state(), 0.9
    for name, gradient in expected.items():
        found = state[f"exp_avg.{name}"] / (1.0 - beta1)
        assert float(gradient.norm()) > 0.0
        torch.testing.assert_close(found, gradient.float(), rtol=rtol, atol=atol)
    return metrics
