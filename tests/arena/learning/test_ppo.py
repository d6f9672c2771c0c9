from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from typing import Any, Literal

import pytest
import torch

from arena.config import NetworkConfig
from arena.core import ActorInput, Algorithm
from arena.envs.base import Group, Turn
from arena.errors import CheckpointCorrupt, NonFiniteError
from arena.experience import Rollout
from arena.learning.hyperparameters import PpoHyperparameters, PpoSettings
from arena.learning.ppo import Ppo
from arena.learning.ppo_loss import explained_variance
from arena.networks.frozen import FrozenPolicy
from arena.rollout.buffer import RolloutBuffer
from tests.arena.samples import CPU, make_ppo, make_rollout, make_turn
from tests.layouts import discrete, flat_observation

NETWORK = NetworkConfig(hidden_sizes=(16, 16))
SIZE, NUM_ACTIONS = 6, 4

METRICS = {
    "loss/policy",
    "loss/value",
    "loss/total",
    "policy/entropy",
    "policy/kl",
    "policy/kl_max",
    "policy/clip_fraction",
    "policy/ratio_min",
    "policy/ratio_max",
    "advantage/min",
    "advantage/max",
    "value/explained_variance",
    "gradient/norm",
    "gradient/skipped",
    "optimizer/learning_rate",
    "optimizer/updates",
}


def make(
    numbers: PpoHyperparameters | None = None, *, network: NetworkConfig = NETWORK, **options: Any
) -> Ppo:
    return make_ppo(network, size=SIZE, action=discrete(NUM_ACTIONS), numbers=numbers, **options)


def play(ppo: Algorithm, *, num_decisions: int = 64, seed: int = 0) -> Rollout:
    generator = torch.Generator().manual_seed(seed)
    observation = 2.0 * torch.randn(num_decisions, SIZE, generator=generator) + 1.0
    mask = torch.rand(num_decisions, NUM_ACTIONS, generator=generator) < 0.7
    mask[:, 1] = True
    output = ppo.act(ActorInput(observation=observation, action_mask=mask), generator=generator)
    value = output.value.clone()
    advantage = torch.randn(num_decisions, generator=generator)
    return make_rollout(
        observation,
        action_mask=mask,
        action=output.action.clone(),
        log_prob=output.log_prob.clone(),
        value=value,
        advantage=advantage,
        return_=advantage + value + 3.0,
    )


def train(ppo: Algorithm, *, num_rollouts: int, first: int = 0) -> dict[str, float]:
    generator = torch.Generator().manual_seed(99 + first)
    metrics: dict[str, float] = {}
    for k in range(first, first + num_rollouts):
        metrics = ppo.update(play(ppo, seed=k), generator=generator)
    return metrics


def digest(tensors: dict[str, torch.Tensor]) -> str:
    content = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        content.update(name.encode())
        content.update(tensor.numpy().tobytes())
    return content.hexdigest()


def test_metrics_are_complete_finite_and_read_back() -> None:
    ppo = make(PpoHyperparameters(learning_rate=1e-3, num_epochs=3, num_minibatches=5))
    metrics = train(ppo, num_rollouts=2)
    assert set(metrics) == METRICS
    assert all(math.isfinite(value) for value in metrics.values())
    assert metrics["optimizer/learning_rate"] == 1e-3
    assert metrics["optimizer/updates"] == ppo.learner_updates == 2 * 3 * 5
    assert metrics["gradient/skipped"] == 0.0
    assert 0.0 < metrics["policy/entropy"] < math.log(NUM_ACTIONS)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("normalize", [False, True])
def test_the_first_step_sees_the_policy_that_played(normalize: bool, precision: str) -> None:
    ppo = make(
        PpoHyperparameters(num_epochs=1, num_minibatches=1),
        network=NETWORK.model_copy(update={"normalize_observations": normalize}),
        precision=precision,
    )
    for k in range(3):
        metrics = train(ppo, num_rollouts=1, first=k)
        # The ratio is 1, so the surrogate is the mean of normalized advantages: 0.
        assert metrics["policy/kl"] == pytest.approx(0.0, abs=1e-9)
        assert metrics["policy/clip_fraction"] == 0.0
        assert metrics["policy/ratio_min"] == pytest.approx(1.0, abs=1e-5)
        assert metrics["policy/ratio_max"] == pytest.approx(1.0, abs=1e-5)
        assert metrics["loss/policy"] == pytest.approx(0.0, abs=1e-6)


def test_the_first_losses_by_a_second_implementation() -> None:
    hyperparameters = PpoHyperparameters(
        num_epochs=1, num_minibatches=1, value_coef=0.7, entropy_coef=0.3
    )
    ppo = make(hyperparameters)
    rollout = play(ppo)
    weights = {name: tensor.double() for name, tensor in ppo.weights().items()}
    metrics = ppo.update(rollout, generator=torch.Generator())
    features = rollout.observation.double().clamp(-10, 10)  # a fresh normalizer is the identity
    for layer in (0, 2):
        features = features @ weights[f"trunk.{layer}.weight"].T + weights[f"trunk.{layer}.bias"]
        features = features.relu()
    outputs = features @ weights["head.weight"].T + weights["head.bias"]
    assert rollout.action_mask is not None
    policy = torch.distributions.Categorical(
        logits=outputs[:, :-1].masked_fill(~rollout.action_mask, -1e30)
    )
    returns = rollout.return_.double()
    target = (returns - returns.mean()) / returns.std(correction=0)
    value_loss = (outputs[:, -1] - target).square().mean().item()
    entropy = policy.entropy().mean().item()  # type: ignore[no-untyped-call]
    assert metrics["loss/value"] == pytest.approx(value_loss, rel=1e-4)
    assert metrics["policy/entropy"] == pytest.approx(entropy, rel=1e-5)
    assert metrics["loss/total"] == pytest.approx(0.7 * value_loss - 0.3 * entropy, rel=1e-4)


@pytest.mark.parametrize("normalization", ["rollout", "minibatch"])
def test_extremes_are_those_of_advantages_as_collected_and_of_ratios_by_hand(
    normalization: str,
) -> None:
    ppo = make(
        PpoHyperparameters(num_epochs=1, num_minibatches=1),
        settings=PpoSettings.model_validate({"advantage_normalization": normalization}),
    )
    rollout = play(ppo)
    # The collecting policy had an eighth of the current probability for one action, twice for
    # another.
    shift = torch.zeros(len(rollout))
    shift[5], shift[40] = math.log(8.0), -math.log(2.0)
    played = replace(rollout, log_prob=rollout.log_prob - shift)
    metrics = ppo.update(played, generator=torch.Generator())
    assert metrics["policy/ratio_max"] == pytest.approx(8.0, rel=1e-4)
    assert metrics["policy/ratio_min"] == pytest.approx(0.5, rel=1e-4)
    assert metrics["advantage/min"] == min(rollout.advantage.tolist()) < -1.5
    assert metrics["advantage/max"] == max(rollout.advantage.tolist()) > 1.5


def test_act_and_value_are_in_units_of_reward_and_legal() -> None:
    ppo = make()
    train(ppo, num_rollouts=1)
    rollout = play(ppo, seed=5)
    assert rollout.action_mask is not None
    assert rollout.action_mask.gather(1, rollout.action[:, None]).all()
    torch.testing.assert_close(
        ppo.value(ActorInput(observation=rollout.observation)), rollout.value
    )
    # Returns are around 3, and a network near its initialization predicts their mean.
    returns = play(make(), seed=0).return_
    assert abs(float(rollout.value.mean() - returns.mean())) < 1.0
    frozen = FrozenPolicy.from_weights(
        NETWORK,
        ppo.weights(),
        observation=flat_observation(SIZE),
        action=discrete(NUM_ACTIONS),
        device=CPU,
    )
    log_probs = frozen.logits(rollout.observation, rollout.action_mask).log_softmax(1)
    torch.testing.assert_close(log_probs.gather(1, rollout.action[:, None])[:, 0], rollout.log_prob)


@pytest.mark.slow
def test_values_learn_returns_of_any_scale() -> None:
    ppo = make(PpoHyperparameters(learning_rate=3e-3, entropy_coef=0.0))
    generator = torch.Generator().manual_seed(0)
    for k in range(60):
        rollout = play(ppo, num_decisions=256, seed=k)
        return_ = 1000.0 * rollout.observation[:, 0] - 5000.0
        ppo.update(
            replace(rollout, return_=return_, advantage=return_ - rollout.value),
            generator=generator,
        )
    rollout = play(ppo, num_decisions=256, seed=1000)
    expected = 1000.0 * rollout.observation[:, 0] - 5000.0
    error = (
        (ppo.value(ActorInput(observation=rollout.observation)) - expected).square().mean().sqrt()
    )
    # The returns have a standard deviation of 2000.
    assert float(error) < 400.0


def test_a_clipped_value_learns_from_the_first_rollout() -> None:
    ppo = make(
        PpoHyperparameters(learning_rate=1e-2, num_epochs=8, entropy_coef=0.0, value_clip=0.2),
        network=NETWORK.model_copy(update={"normalize_observations": False}),
    )
    generator = torch.Generator().manual_seed(0)
    rollout = play(ppo, num_decisions=1024)
    # The returns are far from what a network without statistics predicts.
    return_ = 3.0 * rollout.observation[:, 0] - 30.0
    first = replace(rollout, return_=return_, advantage=torch.zeros(1024))
    ppo.update(first, generator=generator)
    test = play(ppo, num_decisions=1024, seed=1).observation
    target = 3.0 * test[:, 0] - 30.0
    explained = explained_variance(ppo.value(ActorInput(observation=test)), target)
    assert explained is not None
    assert explained > 0.8


@pytest.mark.slow
def test_values_follow_returns_that_grow_tenfold() -> None:
    ppo = make(
        PpoHyperparameters(learning_rate=1e-2, entropy_coef=0.0, num_epochs=2, num_minibatches=2)
    )
    generator = torch.Generator().manual_seed(0)
    errors = {}
    for k in range(120):
        scale = 1.0 if k < 40 else 10.0
        rollout = play(ppo, num_decisions=256, seed=k)
        return_ = scale * (rollout.observation[:, 0] + 5.0)
        errors[k] = (
            float(
                (ppo.value(ActorInput(observation=rollout.observation)) - return_)
                .square()
                .mean()
                .sqrt()
            )
            / scale
        )
        ppo.update(
            replace(rollout, return_=return_, advantage=return_ - rollout.value),
            generator=generator,
        )
    weights = ppo.weights()
    # The returns have a standard deviation of 2, and then of 20.
    assert weights["return_normalizer.variance"].sqrt().item() == pytest.approx(20.0, rel=0.1)
    assert weights["return_normalizer.mean"].item() == pytest.approx(60.0, rel=0.1)
    assert max(errors[39], errors[119]) < 0.4


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_restored_policy_learns_on_bit_for_bit(precision: str) -> None:
    uninterrupted = make(precision=precision)
    train(uninterrupted, num_rollouts=2)
    weights, optimizer = uninterrupted.weights(), uninterrupted.optimizer_state()
    restored = make(precision=precision, seed=17)
    restored.load(weights, optimizer, learner_updates=uninterrupted.learner_updates)
    assert digest(restored.weights()) == digest(weights)
    assert digest(restored.optimizer_state()) == digest(optimizer)
    for ppo in (uninterrupted, restored):
        train(ppo, num_rollouts=2, first=2)
    assert digest(restored.weights()) == digest(uninterrupted.weights())
    assert digest(restored.optimizer_state()) == digest(uninterrupted.optimizer_state())
    assert restored.learner_updates == uninterrupted.learner_updates


def test_a_restore_never_overwrites_a_mutated_hyperparameter() -> None:
    donor = make(PpoHyperparameters(learning_rate=1e-3, adam_beta1=0.8))
    train(donor, num_rollouts=1)
    explorer = make(PpoHyperparameters(learning_rate=5e-5, adam_beta1=0.95))
    explorer.load(donor.weights(), donor.optimizer_state(), learner_updates=3)
    metrics = train(explorer, num_rollouts=1)
    assert metrics["optimizer/learning_rate"] == 5e-5
    assert metrics["optimizer/updates"] == 3 + 16
    assert not any("lr" in name or "beta" in name for name in donor.optimizer_state())


@pytest.mark.parametrize(("name", "value"), [("adam_beta2", 0.5), ("adam_eps", 1e-2)])
def test_a_mutated_number_of_adam_works_after_a_restore(name: str, value: float) -> None:
    donor = make()
    train(donor, num_rollouts=1)
    kept, explorer = make(), make(PpoHyperparameters.model_validate({name: value}))
    for ppo in (kept, explorer):
        ppo.load(donor.weights(), donor.optimizer_state(), learner_updates=0)
        ppo.update(play(ppo), generator=torch.Generator().manual_seed(5))
    bias = "trunk.0.bias"
    distance = (explorer.weights()[bias] - kept.weights()[bias]).abs().max().item()
    assert distance > 1e-5
    # exp_avg_sq decays by beta2; eps only divides the step.
    squares = [ppo.optimizer_state()[f"exp_avg_sq.{bias}"].max().item() for ppo in (kept, explorer)]
    assert (squares[1] > 10.0 * squares[0]) == (name == "adam_beta2")


def test_copies_alias_nothing() -> None:
    ppo = make()
    train(ppo, num_rollouts=1)
    weights, optimizer = ppo.weights(), ppo.optimizer_state()
    before = digest(weights), digest(optimizer)
    train(ppo, num_rollouts=1)
    assert (digest(weights), digest(optimizer)) == before
    assert digest(ppo.weights()) != before[0]
    restored = make()
    restored.load(weights, optimizer, learner_updates=0)
    for tensor in (*weights.values(), *optimizer.values()):
        assert tensor.dtype == torch.float32
        tensor.fill_(0.0)
    assert (digest(restored.weights()), digest(restored.optimizer_state())) == before


def test_loading_is_strict_and_all_or_nothing() -> None:
    ppo = make()
    weights, optimizer = ppo.weights(), ppo.optimizer_state()
    before = digest(weights)
    changed = weights | {"trunk.0.bias": weights["trunk.0.bias"] + 1.0}
    with pytest.raises(CheckpointCorrupt, match=r"head.bias must have shape"):
        ppo.load(changed | {"head.bias": torch.zeros(9)}, optimizer, learner_updates=0)
    assert digest(ppo.weights()) == before
    del optimizer["exp_avg.head.bias"]
    with pytest.raises(CheckpointCorrupt, match=r"optimizer.*missing.*exp_avg.head.bias"):
        ppo.load(weights, optimizer, learner_updates=0)


@pytest.mark.parametrize("num_decisions", [1, 2, 3, 5, 63])
def test_few_decisions_never_make_an_empty_minibatch(num_decisions: int) -> None:
    ppo = make(PpoHyperparameters(num_epochs=2, num_minibatches=4))
    metrics = ppo.update(play(ppo, num_decisions=num_decisions), generator=torch.Generator())
    assert ppo.learner_updates == 2 * min(4, num_decisions)
    assert all(math.isfinite(value) for value in metrics.values())


def test_an_empty_rollout_changes_nothing_and_says_nothing() -> None:
    ppo = make()
    before = digest(ppo.weights())
    metrics = ppo.update(play(ppo, num_decisions=0), generator=torch.Generator())
    assert metrics == {}
    assert (digest(ppo.weights()), ppo.learner_updates) == (before, 0)


def test_target_kl_stops_between_epochs() -> None:
    free = PpoHyperparameters(learning_rate=1e-2, num_epochs=10, num_minibatches=2)
    ppo = make(free)
    unbounded = train(ppo, num_rollouts=1)
    assert ppo.learner_updates == 20
    ppo = make(free.model_copy(update={"target_kl": 1e-4}))
    bounded = train(ppo, num_rollouts=1)
    # The second step of the first epoch already starts from a changed policy.
    assert ppo.learner_updates in (2, 4)
    assert 1e-4 < bounded["policy/kl"] < unbounded["policy/kl"]


def test_statistics_move_with_what_was_trained_on() -> None:
    ppo = make()
    rollout = play(ppo, num_decisions=500)
    ppo.update(rollout, generator=torch.Generator())
    weights = ppo.weights()
    torch.testing.assert_close(weights["observation_normalizer.mean"], rollout.observation.mean(0))
    torch.testing.assert_close(
        weights["return_normalizer.variance"], rollout.return_.var(0, correction=0)[None]
    )
    assert weights["return_normalizer.count"].item() == 500


@pytest.mark.parametrize("poison", [math.nan, math.inf])
@pytest.mark.parametrize("field", ["advantage", "return_", "log_prob"])
def test_poisoned_rollouts_are_skipped_and_three_in_a_row_are_an_error(
    field: str, poison: float
) -> None:
    ppo = make(PpoHyperparameters(num_epochs=1, num_minibatches=1))
    before = digest({k: v for k, v in ppo.weights().items() if "normalizer" not in k})
    for k in range(2):
        rollout = play(ppo, seed=k)
        getattr(rollout, field)[0] = poison if field != "log_prob" else math.nan
        metrics = ppo.update(rollout, generator=torch.Generator())
        assert metrics["gradient/skipped"] == 1.0
        # No step was made, so there is no loss, entropy or KL to report.
        assert {name for name in metrics if name.startswith(("loss/", "policy/"))} == set()
        assert all(math.isfinite(value) for value in metrics.values())
    rollout = play(ppo, seed=2)
    getattr(rollout, field)[3] = math.nan
    with pytest.raises(NonFiniteError, match=r"3 updates in a row.*learning_rate 0.0003"):
        ppo.update(rollout, generator=torch.Generator())
    weights = ppo.weights()
    assert all(bool(tensor.isfinite().all()) for tensor in weights.values())
    assert digest({k: v for k, v in weights.items() if "normalizer" not in k}) == before


def test_a_good_update_forgives_earlier_skips() -> None:
    ppo = make(PpoHyperparameters(num_epochs=1, num_minibatches=1))
    for k in range(6):
        rollout = play(ppo, seed=k)
        if k % 3 != 2:
            rollout.advantage[0] = math.nan
        ppo.update(rollout, generator=torch.Generator())
    assert ppo.learner_updates == 2


@pytest.mark.parametrize("learning_rate", [1e30, 1e60])
def test_an_absurd_learning_rate_never_leaves_absurd_weights(learning_rate: float) -> None:
    values = PpoHyperparameters().model_dump() | {"learning_rate": learning_rate}
    ppo = make(PpoHyperparameters.model_construct(**values))
    before = digest({**ppo.weights(), **ppo.optimizer_state()})
    with pytest.raises(NonFiniteError):
        train(ppo, num_rollouts=1)
    assert digest({**ppo.weights(), **ppo.optimizer_state()}) == before
    assert ppo.learner_updates == 0


def test_an_update_that_ends_in_absurd_weights_is_undone() -> None:
    values = {"learning_rate": 1e30, "num_epochs": 1, "num_minibatches": 1}
    ppo = make(PpoHyperparameters(**values))
    before = digest({**ppo.weights(), **ppo.optimizer_state()})
    for _ in range(2):
        metrics = train(ppo, num_rollouts=1)
        assert (metrics["gradient/skipped"], metrics["optimizer/updates"]) == (1.0, 0.0)
        assert digest({**ppo.weights(), **ppo.optimizer_state()}) == before
    with pytest.raises(NonFiniteError):
        train(ppo, num_rollouts=1)


def test_bfloat16_computes_nearly_the_same() -> None:
    exact, rounded = make(), make(precision="bfloat16")
    reference, metrics = train(exact, num_rollouts=1), train(rounded, num_rollouts=1)
    for name in ("loss/value", "policy/entropy", "gradient/norm"):
        assert metrics[name] == pytest.approx(reference[name], rel=0.1)
    assert metrics != reference
    assert all(tensor.dtype == torch.float32 for tensor in rounded.weights().values())


NUM_SYMBOLS, NUM_ENVS = 3, 64
NOBODY = torch.zeros(NUM_ENVS, 1, dtype=torch.bool)


class Recall:
    """First answer the symbol, then the next one; action ``NUM_SYMBOLS`` is always illegal."""

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator
        self.symbol = torch.zeros(NUM_ENVS, dtype=torch.int64)
        self.second = False
        self.first_right = torch.zeros(NUM_ENVS, dtype=torch.bool)
        self.begin()

    def begin(self) -> None:
        self.symbol = torch.randint(NUM_SYMBOLS, (NUM_ENVS,), generator=self._generator)
        self.second = False

    def group(self) -> Group:
        observation = torch.zeros(NUM_ENVS, 1, NUM_SYMBOLS + 1)
        observation[torch.arange(NUM_ENVS), 0, self.symbol] = 1.0
        observation[:, 0, NUM_SYMBOLS] = float(self.second)
        mask = torch.ones(NUM_ENVS, 1, NUM_SYMBOLS + 1, dtype=torch.bool)
        mask[:, :, NUM_SYMBOLS] = False
        index = torch.zeros(NUM_ENVS, 1, dtype=torch.int64)
        return Group(agent_index=index, observation=observation, action_mask=mask)

    def step(self, action: torch.Tensor) -> Turn:
        wanted = (self.symbol + int(self.second)) % NUM_SYMBOLS
        right, over = action[:, 0] == wanted, self.second
        reward = (right & self.first_right).float() if over else torch.zeros(NUM_ENVS)
        self.first_right, self.second = right, not over
        if over:
            self.begin()
        return make_turn(
            reward[:, None],
            terminated=NOBODY | over,
            episode_over=torch.full((NUM_ENVS,), over),
        )


def collect(ppo: Ppo, task: Recall, *, generator: torch.Generator) -> Rollout:
    buffer = RolloutBuffer(length=ppo.rollout_length, agents=torch.tensor([0]))
    for t in range(ppo.rollout_length):
        group = task.group()
        assert group.action_mask is not None
        output = ppo.act(
            ActorInput(observation=group.observation[:, 0], action_mask=group.action_mask[:, 0]),
            generator=generator,
        )
        buffer.store(
            t,
            group,
            action=output.action[:, None],
            log_prob=output.log_prob[:, None],
            value=output.value[:, None],
            trained=~NOBODY,
        )
        turn = task.step(output.action[:, None])
        buffer.store_result(t, turn, final_value=torch.zeros(NUM_ENVS, 1))
    group = task.group()
    return buffer.finish(
        group=group,
        value=ppo.value(ActorInput(observation=group.observation[:, 0]))[:, None],
        gamma=ppo.gamma,
        gae_lambda=ppo.gae_lambda,
        needs_transitions=ppo.needs_transitions,
    )


@pytest.mark.parametrize(
    ("precision", "normalize", "advantages"),
    [
        ("float32", True, "gae"),
        ("float32", False, "gae"),
        ("bfloat16", False, "gae"),
        ("float32", False, "vtrace"),
    ],
)
@pytest.mark.slow
def test_learns_the_exact_answer_and_its_value(
    precision: str, normalize: bool, advantages: Literal["gae", "vtrace"]
) -> None:
    ppo = make_ppo(
        NetworkConfig(hidden_sizes=(32,), normalize_observations=normalize),
        size=NUM_SYMBOLS + 1,
        action=discrete(NUM_SYMBOLS + 1),
        numbers={"learning_rate": 5e-3, "rollout_length": 8, "gamma": 0.8},
        settings=PpoSettings(advantages=advantages),
        precision=precision,
    )
    generator = torch.Generator().manual_seed(2)
    task = Recall(generator)
    metrics: dict[str, float] = {}
    for _ in range(80):
        metrics = ppo.update(collect(ppo, task, generator=generator), generator=generator)
    assert metrics["policy/entropy"] < 0.2
    task.begin()
    for second, value in ((0, 0.8), (1, 1.0)):
        group = task.group()
        assert group.action_mask is not None
        rows = group.observation[:, 0]
        output = ppo.act(
            ActorInput(observation=rows, action_mask=group.action_mask[:, 0]), generator=generator
        )
        right = output.action == (task.symbol + second) % NUM_SYMBOLS
        assert right.float().mean() > 0.9
        assert output.log_prob[right].exp().min() > 0.9
        # The value is discounted once per remaining own decision.
        torch.testing.assert_close(
            ppo.value(ActorInput(observation=rows)).mean(), torch.tensor(value), rtol=0, atol=0.08
        )
        task.step((task.symbol + second)[:, None] % NUM_SYMBOLS)
