"""One update of `Ppo` against PPO written down plainly, with torch's distributions."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import Categorical, Normal, TransformedDistribution
from torch.distributions.transforms import AffineTransform, TanhTransform
from torch.nn import functional

from arena.config import NetworkConfig
from arena.core import ActorInput
from arena.experience import Rollout
from arena.learning.hyperparameters import PpoHyperparameters, PpoSettings
from arena.learning.ppo import Ppo
from arena.spaces import ActionLayout
from tests.arena.learning.plain_ppo import assert_update_follows, leaves_of, plain_gradient
from tests.arena.samples import make_ppo, make_rollout
from tests.layouts import branching, discrete, squashed

SIZE, NUM_DECISIONS = 5, 48
SPACES = {
    "discrete": discrete(4),
    "masked_branches": branching(3, 2, 4),
    "squashed_gaussian": squashed(-2.0, 3.0, size=2),
}
LOW, HIGH = -2.0, 3.0
HYPERPARAMETERS = PpoHyperparameters(
    num_epochs=1,
    num_minibatches=1,
    entropy_coef=0.03,
    value_coef=0.7,
    max_grad_norm=0.4,
)


def make(action: ActionLayout, numbers: PpoHyperparameters = HYPERPARAMETERS) -> Ppo:
    network = NetworkConfig(hidden_sizes=(8,), normalize_observations=False)
    settings = PpoSettings(normalize_returns=False)
    return make_ppo(network, size=SIZE, action=action, numbers=numbers, settings=settings, seed=3)


def play(ppo: Ppo, action: ActionLayout) -> Rollout:
    generator = torch.Generator().manual_seed(1)
    observation = torch.randn(NUM_DECISIONS, SIZE, generator=generator)
    mask = None
    if action.num_logits:
        mask = torch.rand(NUM_DECISIONS, action.num_logits, generator=generator) < 0.6
        for first in starts(action):
            mask[:, first] = True
    output = ppo.act(ActorInput(observation=observation, action_mask=mask), generator=generator)
    # The advantages and old log-probabilities are of another policy, so that some ratios are
    # clipped.
    noise = 0.4 * torch.randn(NUM_DECISIONS, generator=generator)
    advantage = torch.randn(NUM_DECISIONS, generator=generator)
    return make_rollout(
        observation,
        action_mask=mask,
        action=output.action.clone(),
        log_prob=output.log_prob + noise,
        value=output.value + 0.3 * noise,
        advantage=advantage,
        return_=advantage + output.value,
    )


def starts(action: ActionLayout) -> list[int]:
    """The first logit of each branch."""
    return [sum(action.branches[:branch]) for branch in range(len(action.branches))]


def log_prob_and_entropy(
    parameters: torch.Tensor, rollout: Rollout, action: ActionLayout
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the rollout's actions, and of the policy, summed over independent parts. [D] each."""
    if not action.branches:
        mean, log_std = parameters.chunk(2, dim=1)
        u = rollout.action.double()
        squash = [
            TanhTransform(cache_size=1),
            AffineTransform((LOW + HIGH) / 2, (HIGH - LOW) / 2, cache_size=1),
        ]
        policy = TransformedDistribution(Normal(mean, log_std.exp()), squash)
        given = squash[1](squash[0](u))
        # E[-log p] over a fine grid of quantiles, which move with the parameters.
        grid = torch.linspace(0.0, 1.0, 4002, dtype=torch.float64)[1:-1, None, None]
        drawn = mean + log_std.exp() * Normal(0.0, 1.0).icdf(grid)  # type: ignore[no-untyped-call]
        slope = 2.0 * (torch.log(torch.tensor(2.0)) - drawn - functional.softplus(-2.0 * drawn))
        normal = Normal(mean, log_std.exp()).entropy()  # type: ignore[no-untyped-call]
        half = torch.log(torch.tensor((HIGH - LOW) / 2, dtype=torch.float64))
        entropy = normal + slope.mean(dim=0) + half
        log_prob = policy.log_prob(given)  # type: ignore[no-untyped-call]
        return log_prob.sum(dim=1), entropy.sum(dim=1)
    assert rollout.action_mask is not None
    logits = parameters.masked_fill(~rollout.action_mask, -1e30)
    chosen = rollout.action.reshape(NUM_DECISIONS, -1)
    log_prob, entropy = torch.zeros(()), torch.zeros(())
    for branch, (first, width) in enumerate(zip(starts(action), action.branches, strict=True)):
        each = Categorical(logits=logits[:, first : first + width])
        log_prob = log_prob + each.log_prob(chosen[:, branch])  # type: ignore[no-untyped-call]
        entropy = entropy + each.entropy()  # type: ignore[no-untyped-call]
    return log_prob, entropy


def reference_gradient(
    weights: dict[str, torch.Tensor],
    rollout: Rollout,
    action: ActionLayout,
    hyperparameters: PpoHyperparameters,
) -> dict[str, torch.Tensor]:
    """The clipped gradient of PPO's loss, by name of parameter."""
    leaves = leaves_of(weights)
    hidden = functional.linear(
        rollout.observation.double(), leaves["trunk.0.weight"], leaves["trunk.0.bias"]
    ).relu()
    outputs = functional.linear(hidden, leaves["head.weight"], leaves["head.bias"])
    parameters, value = outputs[:, :-1], outputs[:, -1]
    if "log_std" in leaves:
        log_std = leaves["log_std"].expand(NUM_DECISIONS, -1)
        parameters = torch.cat([parameters, log_std], dim=1)
    log_prob, entropy = log_prob_and_entropy(parameters, rollout, action)
    return plain_gradient(
        leaves, rollout, log_prob=log_prob, entropy=entropy, value=value, numbers=hyperparameters
    )


@pytest.mark.parametrize("value_clip", [None, 0.05])
@pytest.mark.parametrize("space", SPACES)
def test_an_update_follows_the_gradient_of_the_plain_loss(
    space: str, value_clip: float | None
) -> None:
    action = SPACES[space]
    hyperparameters = HYPERPARAMETERS.model_copy(update={"value_clip": value_clip})
    ppo = make(action, hyperparameters)
    rollout = play(ppo, action)
    expected = reference_gradient(ppo.weights(), rollout, action, hyperparameters)
    metrics = assert_update_follows(ppo, rollout, expected)
    assert 0.1 < metrics["policy/clip_fraction"] < 0.9


def test_clipped_values_differ_from_unclipped_ones() -> None:
    """So the case above is one: some value is out of reach of its clip."""
    action = SPACES["discrete"]
    gradients = []
    for value_clip in (None, 0.05):
        hyperparameters = HYPERPARAMETERS.model_copy(update={"value_clip": value_clip})
        ppo = make(action, hyperparameters)
        rollout = play(ppo, action)
        gradients.append(reference_gradient(ppo.weights(), rollout, action, hyperparameters))
    assert not torch.allclose(gradients[0]["head.bias"], gradients[1]["head.bias"], rtol=0.01)
