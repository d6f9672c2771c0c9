"""What PPO can do besides: V-trace, values in units of reward, a magnet, an average that plays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import pytest
import torch

from arena.config import NetworkConfig
from arena.core import ActorInput
from arena.errors import CheckpointCorrupt
from arena.experience import Rollout, Transitions
from arena.learning.acting import product_dtype
from arena.learning.advantages import vtrace
from arena.learning.hyperparameters import PpoSettings
from arena.learning.ppo import Ppo
from arena.learning.ppo_loss import Batch, PpoLoss, ppo_loss
from arena.networks import distributions
from arena.networks.actor_critic import ActorCritic, make_actor_critic
from arena.networks.distributions import Distribution
from arena.spaces import ObservationLayout
from tests.arena.samples import make_ppo, make_rollout
from tests.layouts import discrete, flat_observation

SIZE, NUM_ACTIONS, NUM_DECISIONS = 4, 3, 40
NETWORK = NetworkConfig(hidden_sizes=(8,))
Tensors = Mapping[str, torch.Tensor]

ONE_STEP = {"num_epochs": 1, "num_minibatches": 1}
BOTH = {"ema_decay": 0.9, "magnet_coef": 0.2}


def make(numbers: Mapping[str, float] | None = None, **options: Any) -> Ppo:
    numbers = {"learning_rate": 3e-3, **(numbers or {})}
    return make_ppo(NETWORK, size=SIZE, action=discrete(NUM_ACTIONS), numbers=numbers, **options)


def make_network(seed: int = 0) -> ActorCritic:
    return make_actor_critic(
        NETWORK, observation=flat_observation(SIZE), action=discrete(NUM_ACTIONS), seed=seed
    )


def play(ppo: Ppo, *, seed: int = 0, gamma: float = 0.9, gae_lambda: float = 1.0) -> Rollout:
    """Trajectories of four decisions, every second one ended."""
    generator = torch.Generator().manual_seed(seed)
    observation = torch.randn(NUM_DECISIONS, SIZE, generator=generator)
    output = ppo.act(ActorInput(observation=observation), generator=generator)
    value = output.value.clone()
    row = torch.arange(NUM_DECISIONS)
    successor = torch.where(row < NUM_DECISIONS - 10, row + 10, -1)
    transitions = Transitions(
        reward=5.0 + torch.randn(NUM_DECISIONS, generator=generator),
        successor=successor,
        next_value=torch.where(
            successor >= 0, value[successor], torch.randn(NUM_DECISIONS, generator=generator)
        ),
    )
    advantage, return_ = vtrace(
        transitions,
        value=value,
        ratio=torch.ones(NUM_DECISIONS),
        gamma=gamma,
        gae_lambda=gae_lambda,
    )
    return make_rollout(
        observation,
        action=output.action.clone(),
        log_prob=output.log_prob.clone(),
        value=value,
        advantage=advantage,
        return_=return_,
        transitions=transitions,
    )


def learn(ppo: Ppo, *, rollouts: int, first: int = 0) -> dict[str, float]:
    generator = torch.Generator().manual_seed(first)
    metrics: dict[str, float] = {}
    for seed in range(first, first + rollouts):
        metrics = ppo.update(play(ppo, seed=seed), generator=generator)
    return metrics


def same(first: Tensors, second: Tensors) -> bool:
    return first.keys() == second.keys() and all(
        torch.equal(first[name], second[name]) for name in first
    )


def test_vtrace_of_the_policy_that_played_is_gae() -> None:
    """With lambda 1, where both advantages are those of the whole rest of the trajectory."""
    numbers = {"gamma": 0.9, "gae_lambda": 1.0}
    by_gae, by_vtrace = make(numbers), make(numbers, settings=PpoSettings(advantages="vtrace"))
    assert (by_gae.needs_transitions, by_vtrace.needs_transitions) == (False, True)
    for ppo in (by_gae, by_vtrace):
        learn(ppo, rollouts=1)
    for name, tensor in by_gae.weights().items():
        torch.testing.assert_close(by_vtrace.weights()[name], tensor, rtol=1e-3, atol=1e-5)


def test_vtrace_sees_a_rollout_of_an_older_policy_with_the_eyes_of_now() -> None:
    """The targets are those of the weights of now, not those that were collected."""
    settings = PpoSettings(advantages="vtrace")
    numbers = {"gamma": 0.9, "gae_lambda": 0.8, "learning_rate": 0.05, **ONE_STEP}
    old, now = make(numbers, settings=settings), make(numbers, settings=settings, seed=2)
    for ppo in (old, now):
        learn(ppo, rollouts=8, first=100)
    rollout = play(old, gamma=0.9, gae_lambda=0.8)
    network = make_network()
    network.load_state_dict(now.weights())
    with torch.no_grad():
        log_probs = distributions.masked_log_probs(network.logits(rollout.observation), None)
        log_prob = distributions.action_log_probs(log_probs, rollout.action)
        value = network.value(rollout.observation)
    ratio = (log_prob - rollout.log_prob).exp()
    assert float(ratio.max()) > 1.1
    assert float(ratio.min()) < 0.9
    assert rollout.transitions is not None
    _, target = vtrace(rollout.transitions, value=value, ratio=ratio, gamma=0.9, gae_lambda=0.8)
    returns = network.return_normalizer
    metrics = now.update(rollout, generator=torch.Generator())
    returns.update(target[:, None])
    torch.testing.assert_close(now.weights()["return_normalizer.mean"], returns.mean)
    torch.testing.assert_close(now.weights()["return_normalizer.variance"], returns.variance)
    # The ratio of the surrogate still begins at 1: the importance is in the advantages.
    assert metrics["policy/kl"] == pytest.approx(0.0, abs=1e-6)
    assert metrics["policy/clip_fraction"] == 0.0


def test_vtrace_needs_to_know_what_followed() -> None:
    ppo = make(settings=PpoSettings(advantages="vtrace"))
    without = replace(play(ppo), transitions=None)
    with pytest.raises(ValueError, match="the successor of each decision"):
        ppo.update(without, generator=torch.Generator())


def test_values_in_units_of_reward() -> None:
    ppo = make(ONE_STEP, settings=PpoSettings(normalize_returns=False))
    rollout = play(ppo)
    metrics = ppo.update(rollout, generator=torch.Generator())
    expected = (rollout.value - rollout.return_).square().mean()
    assert metrics["loss/value"] == pytest.approx(float(expected), rel=1e-4)
    weights = ppo.weights()
    assert weights["return_normalizer.count"].item() == 0.0
    assert weights["return_normalizer.variance"].item() == 1.0


def test_what_plays_is_the_average_and_what_learns_is_not() -> None:
    plain, averaged = make(), make({"ema_decay": 0.75})
    expected = {name: t for name, t in plain.weights().items() if "normalizer" not in name}
    for k in range(3):
        for ppo in (plain, averaged):
            learn(ppo, rollouts=1, first=k)
        live = plain.weights()
        expected = {name: 0.75 * tensor + 0.25 * live[name] for name, tensor in expected.items()}
    assert averaged.learner_updates == plain.learner_updates
    weights, state = averaged.weights(), averaged.optimizer_state()
    for name, tensor in live.items():
        if "normalizer" in name:
            assert torch.equal(weights[name], tensor)
        else:
            # Averaging the weights does not change learning.
            assert torch.equal(state[f"live.{name}"], tensor)
            torch.testing.assert_close(weights[name], expected[name])
            assert not torch.equal(weights[name], tensor)


def test_the_magnet_is_a_slow_copy_and_pulls() -> None:
    free, held = make(), make({"magnet_coef": 20.0, "magnet_rate": 0.25})
    first = make_network(seed=1).state_dict()
    for ppo in (free, held):
        metrics = learn(ppo, rollouts=1)
        assert ("policy/magnet_kl" in metrics) == (ppo is held)
    state, live = held.optimizer_state(), held.weights()
    for name in ("trunk.0.weight", "head.bias"):
        torch.testing.assert_close(state[f"magnet.{name}"], 0.75 * first[name] + 0.25 * live[name])
    assert not any(name.startswith("magnet.") for name in free.optimizer_state())
    observation = torch.randn(500, SIZE, generator=torch.Generator().manual_seed(0))
    distances = []
    for ppo in (free, held):
        learn(ppo, rollouts=10, first=1)
        network = make_network()
        network.load_state_dict(ppo.weights())
        probabilities = network.logits(observation).softmax(1).detach()
        distances.append(float((probabilities - 1 / 3).abs().mean()))
    assert distances[1] < 0.5 * distances[0]


def test_the_pull_of_the_magnet_by_a_second_implementation() -> None:
    """With nothing but the magnet in the loss, which has another bias than the policy."""
    ppo = make(
        {
            **ONE_STEP,
            "magnet_coef": 2.0,
            "value_coef": 0.0,
            "entropy_coef": 0.0,
            "max_grad_norm": 1e6,
        }
    )
    weights, state = ppo.weights(), ppo.optimizer_state()
    state["magnet.head.bias"][:NUM_ACTIONS] = torch.tensor([1.0, 0.0, -1.0])
    ppo.load(weights, state, learner_updates=0)
    rollout = play(ppo)
    rollout.advantage.zero_()
    metrics = ppo.update(rollout, generator=torch.Generator())
    hidden = torch.nn.functional.linear(
        rollout.observation.clamp(-10, 10), weights["trunk.0.weight"], weights["trunk.0.bias"]
    ).relu()
    logits = torch.nn.functional.linear(
        hidden, weights["head.weight"][:NUM_ACTIONS], torch.zeros(NUM_ACTIONS)
    )
    bias = torch.zeros(NUM_ACTIONS, requires_grad=True)
    log_policy = (logits + bias).log_softmax(1)
    log_magnet = (logits + torch.tensor([1.0, 0.0, -1.0])).log_softmax(1)
    divergence = (log_policy.exp() * (log_policy - log_magnet)).sum(1).mean()
    assert metrics["policy/magnet_kl"] == pytest.approx(divergence.item(), rel=1e-4)
    (gradient,) = torch.autograd.grad(2.0 * divergence, bias)
    found = ppo.optimizer_state()["exp_avg.head.bias"][:NUM_ACTIONS] / 0.1
    torch.testing.assert_close(found, gradient, rtol=1e-3, atol=1e-6)


def restored(ppo: Ppo, numbers: Mapping[str, float] | None = None) -> Ppo:
    """Another policy that has taken over everything, with hyperparameters of its own."""
    other = make(numbers, seed=9)
    other.load(ppo.weights(), ppo.optimizer_state(), learner_updates=ppo.learner_updates)
    return other


def test_a_restored_policy_learns_on_bit_for_bit() -> None:
    numbers = {"ema_decay": 0.9, "magnet_coef": 0.2, "magnet_rate": 0.1, "value_clip": 0.2}
    numbers["desired_kl"] = 1e-5
    one = make(numbers)
    learn(one, rollouts=2)
    assert one.optimizer_state()["factor.steps"].item() == -2.0
    other = restored(one, numbers)
    for _ in range(2):
        assert same(one.weights(), other.weights())
        assert same(one.optimizer_state(), other.optimizer_state())
        for ppo in (one, other):
            learn(ppo, rollouts=2, first=7)


def test_an_exploit_takes_magnet_and_live_weights_whatever_is_explored() -> None:
    donor = make(BOTH)
    learn(donor, rollouts=3)
    state = donor.optimizer_state()
    plain = restored(donor)
    live = {name: t for name, t in plain.weights().items() if "normalizer" not in name}
    assert same(live, {name: state[f"live.{name}"] for name in live})
    assert not any(name.startswith(("live.", "magnet.")) for name in plain.optimizer_state())
    # The hyperparameters need an average that the state lacks, so it starts from the weights.
    again = restored(plain, {"ema_decay": 0.5, "magnet_coef": 0.1})
    assert same(again.weights(), plain.weights())
    state = again.optimizer_state()
    for name, tensor in live.items():
        assert torch.equal(state[f"magnet.{name}"], tensor)
        assert torch.equal(state[f"live.{name}"], tensor)


def test_the_learning_rate_follows_the_kl_within_bounds() -> None:
    free = make()
    learn(free, rollouts=1)
    assert not any(name.startswith("factor") for name in free.optimizer_state())
    kl = learn(make(), rollouts=1)["policy/kl"]
    # The first update's KL is the same for any desired one; between half and twice it nothing
    # changes.
    for desired, step in ((kl / 2.1, -1), (kl / 1.9, 0), (kl * 1.9, 0), (kl * 2.1, 1)):
        ppo = make({"desired_kl": desired})
        assert learn(ppo, rollouts=1)["optimizer/learning_rate"] == 3e-3
        rate = learn(ppo, rollouts=1, first=1)["optimizer/learning_rate"]
        assert rate == pytest.approx(3e-3 * 1.5**step, rel=1e-12)
    for desired, steps in ((1e-12, -9), (1e6, 9)):
        ppo = make({"desired_kl": desired, "learning_rate": 1e-4})
        rate = learn(ppo, rollouts=12)["optimizer/learning_rate"]
        assert rate == pytest.approx(1e-4 * 1.5**steps, rel=1e-12)
        # The donor's factor is copied; the explored learning rate is the policy's own.
        other = restored(ppo, {"desired_kl": desired, "learning_rate": 2e-4})
        rate = learn(other, rollouts=1)["optimizer/learning_rate"]
        assert rate == pytest.approx(2e-4 * 1.5**steps, rel=1e-12)
        assert learn(restored(ppo), rollouts=1)["optimizer/learning_rate"] == 3e-3
        ppo.load(ppo.weights(), None, learner_updates=0)
        assert learn(ppo, rollouts=1)["optimizer/learning_rate"] == 1e-4


def test_the_kl_of_a_single_step_says_nothing_about_the_learning_rate() -> None:
    ppo = make({"desired_kl": 0.01, **ONE_STEP})
    assert learn(ppo, rollouts=3)["optimizer/learning_rate"] == 3e-3


def test_without_training_state_everything_starts_from_the_weights() -> None:
    ppo, other = make(BOTH), make(seed=5)
    learn(ppo, rollouts=2)
    weights = other.weights()
    ppo.load(weights, None, learner_updates=4)
    assert same(ppo.weights(), weights)
    state = ppo.optimizer_state()
    for name in ("trunk.0.weight", "head.bias"):
        assert torch.equal(state[f"live.{name}"], weights[name])
        assert torch.equal(state[f"magnet.{name}"], weights[name])


@pytest.mark.parametrize("part", ["live", "magnet"])
def test_a_damaged_part_is_refused(part: str) -> None:
    ppo = make(BOTH)
    state = ppo.optimizer_state()
    del state[f"{part}.head.bias"]
    with pytest.raises(CheckpointCorrupt, match=rf"{part}.*missing \['head.bias'\]"):
        ppo.load(ppo.weights(), state, learner_updates=0)


def test_an_update_that_is_undone_moves_no_average() -> None:
    ppo = make({**BOTH, **ONE_STEP, "learning_rate": 1e30})
    before = {**ppo.weights(), **ppo.optimizer_state()}
    learn(ppo, rollouts=1)
    assert same({**ppo.weights(), **ppo.optimizer_state()}, before)


def test_a_penalty_keeps_the_policy_near_the_old_one_within_an_update() -> None:
    distances = {}
    for coef in (0.0, 30.0):
        ppo = make({"kl_coef": coef, "learning_rate": 0.03, "clip_coef": 1.0})
        metrics = learn(ppo, rollouts=1)
        assert ("policy/old_kl" in metrics) == (coef > 0.0)
        distances[coef] = metrics["policy/kl"]
        # The old policy belongs to one update and is not part of the state.
        assert not any("old" in name for name in ppo.optimizer_state())
    assert distances[30.0] < 0.3 * distances[0.0]


def test_a_penalty_begins_at_zero_in_each_update() -> None:
    ppo = make({"kl_coef": 5.0, **ONE_STEP})
    for metrics in (learn(ppo, rollouts=1), learn(ppo, rollouts=2, first=1)):
        assert metrics["policy/old_kl"] == pytest.approx(0.0, abs=1e-6)


def test_advantages_of_each_minibatch_have_mean_0_and_deviation_1(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: dict[str, list[torch.Tensor]] = {}

    def recorded(distribution: Distribution, value: torch.Tensor, batch: Batch,
                 **options: Any) -> PpoLoss:  # fmt: skip
        seen[kind].append(batch.advantage)
        return ppo_loss(distribution, value, batch, **options)

    monkeypatch.setattr("arena.learning.ppo.ppo_loss", recorded)
    kinds: tuple[Literal["rollout", "minibatch"], ...] = ("rollout", "minibatch")
    for kind in kinds:
        seen[kind] = []
        ppo = make({"num_epochs": 1}, settings=PpoSettings(advantage_normalization=kind))
        learn(ppo, rollouts=1)
        assert [len(part) for part in seen[kind]] == [10] * 4
    for part in seen["minibatch"]:
        assert float(part.mean()) == pytest.approx(0.0, abs=1e-6)
        assert float(part.std(correction=0)) == pytest.approx(1.0, abs=1e-5)
    assert max(abs(float(part.mean())) for part in seen["rollout"]) > 0.05
    whole = torch.cat(seen["rollout"])
    assert float(whole.std(correction=0)) == pytest.approx(1.0, abs=1e-5)


CPU = torch.device("cpu")
WIDE = NetworkConfig(hidden_sizes=(32, 128))
NARROW = NetworkConfig(hidden_sizes=(32, 32))
LINEAR = NetworkConfig(hidden_sizes=())


def of_shape(*shape: int, high: int = 255, dtype: str = "uint8") -> ObservationLayout:
    box = {"kind": "Box", "shape": list(shape), "dtype": dtype, "low": 0, "high": high}
    return ObservationLayout.from_json(box)


def with_capabilities(monkeypatch: pytest.MonkeyPatch, **capabilities: bool) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)


@pytest.mark.parametrize("name", ["avx512_bf16", "amx_bf16"])
def test_auto_is_bfloat16_where_the_hardware_multiplies_it(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with_capabilities(monkeypatch, **{name: True})
    assert product_dtype("auto", network=WIDE, device=CPU) == torch.bfloat16
    # Rounding the inputs of small products costs more time than it saves.
    assert product_dtype("auto", network=NARROW, device=CPU) == torch.float32
    assert product_dtype("auto", network=LINEAR, device=CPU) == torch.float32


def test_auto_is_bfloat16_with_convolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    with_capabilities(monkeypatch, avx512_bf16=True)
    pictures = of_shape(28, 48, 1)
    assert product_dtype("auto", network=NARROW, device=CPU, observation=pictures) == torch.bfloat16
    board = of_shape(6, 7, 2, high=1, dtype="int8")
    assert product_dtype("auto", network=NARROW, device=CPU, observation=board) == torch.float32
    convolved = NetworkConfig(hidden_sizes=(32,), encoder="cnn")
    assert product_dtype("auto", network=convolved, device=CPU, observation=board) == torch.bfloat16


@pytest.mark.parametrize(
    "network",
    [
        NetworkConfig(hidden_sizes=(128,), core="gru"),
        NetworkConfig(hidden_sizes=(128,), encoder="package.module:Class"),
    ],
)
def test_auto_is_float32_with_a_memory_or_a_module_of_the_users(
    network: NetworkConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_capabilities(monkeypatch, avx512_bf16=True)
    pictures = of_shape(28, 48, 1)
    assert product_dtype("auto", network=network, device=CPU, observation=pictures) == torch.float32


def test_auto_is_float32_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    with_capabilities(monkeypatch, avx512_bf16=False)
    assert product_dtype("auto", network=WIDE, device=CPU) == torch.float32
    with_capabilities(monkeypatch)
    assert product_dtype("auto", network=WIDE, device=CPU) == torch.float32


def test_a_choice_holds_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    with_capabilities(monkeypatch, avx512_bf16=True)
    assert product_dtype("float32", network=WIDE, device=CPU) == torch.float32
    assert product_dtype("bfloat16", network=NARROW, device=CPU) == torch.bfloat16
