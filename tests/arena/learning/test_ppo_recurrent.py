"""PPO with a memory: truncated backpropagation through time against a plain loop in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from arena.config import NetworkConfig, PopulationSetup
from arena.errors import ConfigError
from arena.experience import Rollout
from arena.learning.acting import product_dtype
from arena.learning.algorithms import make_algorithm
from arena.learning.hyperparameters import PpoHyperparameters, PpoSettings
from arena.learning.ppo import Ppo
from arena.learning.ppo_loss import predict_all
from arena.spaces import ActionLayout
from tests.arena.learning.plain_ppo import (
    Weights,
    assert_update_follows,
    leaves_of,
    plain_gradient,
    play_chains,
)
from tests.arena.samples import make_ppo
from tests.layouts import discrete, flat_observation

SIZE, WIDTH, NUM_ACTIONS, NUM_CHAINS, LENGTH, UNBOUNDED = 5, 6, 3, 4, 9, 1e6
NUM_DECISIONS = NUM_CHAINS * LENGTH


def make(core: Any, settings: PpoSettings | None = None, **numbers: float) -> Ppo:
    return make_ppo(
        NetworkConfig(hidden_sizes=(8,), core=core, core_size=WIDTH, normalize_observations=False),
        size=SIZE,
        action=discrete(NUM_ACTIONS),
        numbers={"num_epochs": 1, "num_minibatches": 1, **numbers},
        settings=settings or PpoSettings(normalize_returns=False),
        seed=3,
    )


def play(ppo: Ppo, *, max_length: int | None) -> Rollout:
    """Chains of nine decisions."""
    return play_chains(ppo, size=SIZE, num_chains=NUM_CHAINS, length=LENGTH, max_length=max_length)


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


def reference_gradient(core: str, weights: Weights, rollout: Rollout) -> Weights:
    """One decision after the other; gradients flow back to where its sequence begins."""
    assert rollout.sequences is not None
    leaves = leaves_of(weights)
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
    return plain_gradient(
        leaves,
        rollout,
        log_prob=log_probs,
        entropy=torch.stack(entropies),
        value=values,
        numbers=PpoHyperparameters(max_grad_norm=UNBOUNDED),
    )


@pytest.mark.parametrize("max_length", [None, 4])
@pytest.mark.parametrize("core", ["gru", "lstm"])
def test_an_update_follows_the_gradient_of_the_plain_loop(
    core: str, max_length: int | None
) -> None:
    ppo = make(core, max_grad_norm=UNBOUNDED)
    rollout = play(ppo, max_length=max_length)
    expected = reference_gradient(core, ppo.weights(), rollout)
    metrics = assert_update_follows(ppo, rollout, expected, rtol=1e-3, atol=1e-6)
    # The unrolled policy is the one that played.
    assert metrics["policy/kl"] == pytest.approx(0.0, abs=1e-6)


def test_where_the_gradient_is_cut_makes_a_difference() -> None:
    weights = make("gru").weights()
    name = "core.recurrent.weight_hh_l0"
    whole, cut = (
        reference_gradient("gru", weights, play(make("gru"), max_length=length))[name]
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
    # Without discounting the target is the number of remaining decisions.
    left = (LENGTH - torch.arange(LENGTH)).repeat_interleave(NUM_CHAINS)
    torch.testing.assert_close(valued.return_, left.float(), rtol=0, atol=1e-3)
    metrics = ppo.update(rollout, generator=torch.Generator())
    assert metrics["policy/magnet_kl"] == pytest.approx(0.0, abs=1e-6)


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
