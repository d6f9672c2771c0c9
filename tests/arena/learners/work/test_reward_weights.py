"""Policies that learn from the parts of their reward, each weighed as the policy has it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from arena.checkpoints.tensors import load_checkpoint
from arena.core import ActorInput, AlgorithmOutput
from arena.learners.work.worker import Worker
from arena.learning.hyperparameters import policy_reward_weights
from arena.rollout.recorder import Learning
from arena.types import PolicyId, Tally, Value
from arena.wire.messages import Finished
from tests.arena.learners.conftest import finished, mirror, setup_of, train
from tests.arena.samples import (
    ASSETS,
    Counted,
    Inert,
    facts_of,
    make_blocks,
    make_collector,
    make_env,
)
from tests.layouts import discrete

POLICY = PolicyId("player/p000")
PPO: dict[str, float] = {"rollout_length": 8, "num_epochs": 2, "num_minibatches": 2}
AGENTS = ("a", "b")
SIDES = {"a": ("a",), "b": ("b",)}


class AlwaysOneForA(Inert):
    """Agent a chooses 1 and b chooses 0; with gamma 0 a return is what was stored as reward."""

    gamma = 0.0
    gae_lambda = 0.0

    def __init__(self, rollout_length: int) -> None:
        self.rollout_length = rollout_length

    def act(self, inputs: ActorInput, *, generator: torch.Generator) -> AlgorithmOutput:
        observation = inputs.observation
        zeros = torch.zeros(len(observation))
        return AlgorithmOutput(action=(observation[:, 1] == 0).long(), log_prob=zeros, value=zeros)


def collect(
    name: str, *, components: dict[str, float], weights: tuple[float, ...] | None, num_steps: int
) -> tuple[dict[str, list[float]], tuple[Tally, ...]]:
    """Rewards of each agent's decisions in order, and the tallies."""
    populations = {"player": AGENTS}
    env = make_env(
        facts_of(f"reward_parts:{name}"),
        num_envs=1,
        populations=populations,
        config={"reward_weights": components},
    )
    learning = Learning(
        policy=POLICY,
        algorithm=AlwaysOneForA(num_steps),
        reward_weights=None if weights is None else torch.tensor(weights),
    )
    collector = make_collector(
        env,
        make_blocks((learning, learning)),
        sides=SIDES,
        populations=populations,
        action=discrete(2),
    )
    ((_, rollout),) = collector.collect()
    env.close()
    of_a = rollout.observation[:, 1] == 0
    rewards = {"a": rollout.return_[of_a].tolist(), "b": rollout.return_[~of_a].tolist()}
    return rewards, collector.tallies()


def test_all_at_once_the_stored_rewards_are_weighted_sums() -> None:
    rewards, tallies = collect(
        "PartsAtOnce", components={"win": 1.0, "near": 0.1}, weights=(2.0, 4.0), num_steps=8
    )
    # a is near by 1/4 in each of 4 steps, times 4, and wins at the last, times 2.
    assert rewards == {"a": [1.0, 1.0, 1.0, 3.0] * 2, "b": [0.0, 0.0, 0.0, -2.0] * 2}
    (tally,) = tallies
    # The tally has the environment's own rewards: 4/4 + 1, and -1.
    assert (tally.matches, tally.return_sum) == (2, (4.0, -2.0))
    (pair,) = tally.pairs
    assert (pair.wins, pair.draws, pair.losses) == (2, 0, 0)


def test_in_turns_a_decision_gets_all_parts_until_the_next_one() -> None:
    rewards, (tally,) = collect(
        "PartsInTurns",
        components={"near": 1.0, "pressed": 1.0, "win": 1.0},
        weights=(4.0, 1.0, 2.0),
        num_steps=8,
    )
    # a is near, then near and wins by b's last turn. b is pressed by a's second turn (the first one
    # comes before any decision of b), then loses.
    assert rewards == {"a": [1.0, 3.0] * 2, "b": [-0.5, -2.0] * 2}
    assert (tally.matches, tally.return_sum) == (2, (3.0, -4.0))


@pytest.mark.parametrize("name", ["PartsAtOnce", "PartsInTurns"])
def test_weights_turned_round_change_rewards_and_nothing_else(name: str) -> None:
    components = {"near": 1.0, "win": 1.0}
    rewards, tallies = collect(name, components={}, weights=None, num_steps=8)
    others, other_tallies = collect(name, components=components, weights=(-1.0, -1.0), num_steps=8)
    assert tallies == other_tallies
    assert others["a"] == [-reward for reward in rewards["a"]]


def test_a_policys_own_weight_counts_before_the_configured_one() -> None:
    weights = policy_reward_weights(
        {"gamma": 0.9, "reward_weights.near": 0.5}, reward_weights={"win": 2, "near": 0.1}
    )
    assert weights == (2.0, 0.5)


def train_once(
    root: Path, name: str, *, components: dict[str, float], hyperparameters: Mapping[str, float]
) -> tuple[Finished, dict[str, Value]]:
    """A short assignment from fresh weights: the answer, and the hyperparameters recorded."""
    root.mkdir()
    setup = setup_of(
        root,
        facts_of(f"reward_parts:{name}"),
        environment={"num_envs": 4, "reward_weights": components},
        launch_directory=ASSETS,
    )
    worker = Worker(setup, progress=Counted(), should_stop=lambda: False)
    answer = finished(
        worker.carry_out(
            train(None, mirror(), agent_steps=200, seed=4, hyperparameters=hyperparameters)
        )
    )
    worker.close()
    manifest = load_checkpoint(root, answer.checkpoints[0].checkpoint)[0]
    return answer, dict(manifest.hyperparameters)


@pytest.mark.parametrize(
    ("name", "parts"),
    [("PartsAtOnce", ("near", "win")), ("PartsInTurns", ("near", "pressed", "win"))],
)
def test_weights_of_one_are_the_run_without_weights_bit_for_bit(
    tmp_path: Path, name: str, parts: tuple[str, ...]
) -> None:
    ones = dict.fromkeys(parts, 1.0)
    own = {f"reward_weights.{part}": 1.0 for part in parts}
    plain, recorded = train_once(tmp_path / "plain", name, components={}, hyperparameters=PPO)
    assert recorded == PPO
    for root, components, hyperparameters in (
        ("ones", ones, {**PPO, **own}),
        ("own", dict.fromkeys(parts, 7.0), {**PPO, **own}),
        ("default", ones, PPO),
    ):
        weighed, recorded = train_once(
            tmp_path / root, name, components=components, hyperparameters=hyperparameters
        )
        # The digest covers weights and optimizer.
        assert weighed.checkpoints == plain.checkpoints
        assert weighed.tallies == plain.tallies
        assert recorded == hyperparameters
