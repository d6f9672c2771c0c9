"""Policies that learn from the parts of their reward, each weighed as the policy has it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from arena.checkpoints.tensors import load_checkpoint
from arena.config import (
    EnvironmentConfig,
    LearnerSetup,
    NetworkConfig,
    PopulationSetup,
    RandomOpenings,
)
from arena.core import ActorInput, AlgorithmOutput
from arena.environment_spec import EnvironmentRequest
from arena.envs.describe import environment_facts
from arena.envs.make import make_batched_env
from arena.envs.one_by_one.steppers import EnvsRequest
from arena.envs.spaces.actions import ActionLayout
from arena.experience import Rollout
from arena.learners.work.worker import Worker
from arena.learning.hyperparameters import policy_reward_weights
from arena.matches.seating import make_seats
from arena.rollout.collector import Collector, TrainingBlock
from arena.rollout.recorder import Learning
from arena.types import AssignmentId, Entrant, Player, PlayerId, PolicyId, Seating, Tally
from arena.wire.messages import Finished, Train, Trainee

ASSETS = str(Path(__file__).parents[3] / "assets")
POLICY = PolicyId("player/p000")
PPO: dict[str, float] = {"rollout_length": 8, "num_epochs": 2, "num_minibatches": 2}
AGENTS = ("a", "b")
TWO = ActionLayout.from_json({"kind": "Discrete", "n": 2, "start": 0}, continuous="squashed")
SIDES = {"a": ("a",), "b": ("b",)}
SEATS = make_seats(agents=AGENTS, sides=SIDES, populations={"player": AGENTS})


class NoProgress:
    def advance(self, agent_steps: int = 0) -> None:
        pass


class AlwaysOneForA:
    """Agent a chooses 1 and b chooses 0; with gamma 0 a return is what was stored as reward."""

    state_size = 0
    critic_size = 0
    bptt_length = None
    gamma = 0.0
    gae_lambda = 0.0
    needs_transitions = False
    learner_updates = 0

    def __init__(self, rollout_length: int) -> None:
        self.rollout_length = rollout_length

    def act(self, inputs: ActorInput, *, generator: torch.Generator) -> AlgorithmOutput:
        observation = inputs.observation
        zeros = torch.zeros(len(observation))
        return AlgorithmOutput(action=(observation[:, 1] == 0).long(), log_prob=zeros, value=zeros)

    def value(self, inputs: ActorInput) -> torch.Tensor:
        observation = inputs.observation
        return torch.zeros(len(observation))

    def update(self, rollout: Rollout, *, generator: torch.Generator) -> dict[str, float]:
        return {}

    def weights(self) -> dict[str, torch.Tensor]:
        return {}

    def optimizer_state(self) -> dict[str, torch.Tensor]:
        return {}

    def load(
        self,
        weights: Mapping[str, torch.Tensor],
        optimizer_state: Mapping[str, torch.Tensor] | None,
        *,
        learner_updates: int,
    ) -> None:
        pass


def collect(
    name: str, *, components: dict[str, float], weights: tuple[float, ...] | None, num_steps: int
) -> tuple[dict[str, list[float]], tuple[Tally, ...]]:
    """Rewards of each agent's decisions in order, and the tallies."""
    environment = EnvironmentConfig(id=f"reward_parts:{name}", reward_weights=components)
    spec = environment_facts(EnvironmentRequest(environment.id, launch_directory=ASSETS))
    env = make_batched_env(
        EnvsRequest(
            environment,
            spec=spec,
            sides=SIDES,
            populations={"player": AGENTS},
            num_envs=1,
            launch_directory=ASSETS,
        )
    )
    learning = Learning(
        policy=POLICY,
        algorithm=AlwaysOneForA(num_steps),
        reward_weights=None if weights is None else torch.tensor(weights),
    )
    collector = Collector(
        env,
        seeds=[1],
        blocks=[TrainingBlock(entrants=(Entrant("x"), Entrant("x")), players=(learning, learning))],
        seats=SEATS,
        sides=("a", "b"),
        populations={"player": AGENTS},
        actions={"player": TWO},
        openings=RandomOpenings(),
        generator=torch.Generator().manual_seed(1),
        progress=NoProgress(),
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
    # The environment's own rewards: 4/4 + 1, and -1.
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
    # a: near, then near and the win that b's last turn brings. b: pressed by a's second turn (its
    # first is before any decision of b), then the defeat.
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
) -> tuple[Finished, dict[str, float]]:
    """A short assignment from fresh weights: the answer, and the hyperparameters recorded."""
    root.mkdir()
    environment_id = f"reward_parts:{name}"
    setup = LearnerSetup(
        run="test",
        root=str(root),
        launch_directory=ASSETS,
        environment=EnvironmentConfig(id=environment_id, num_envs=4, reward_weights=components),
        spec=environment_facts(EnvironmentRequest(environment_id, launch_directory=ASSETS)),
        sides=SIDES,
        seats=SEATS,
        populations={
            "player": PopulationSetup(agents=AGENTS, network=NetworkConfig(hidden_sizes=(8,)))
        },
        device="cpu",
        precision="float32",
    )
    worker = Worker(setup, progress=NoProgress(), should_stop=lambda: False)
    me = Player(player=PlayerId(POLICY))
    answer = worker.carry_out(
        Train(
            assignment_id=AssignmentId(1),
            attempt=1,
            trainees=(
                Trainee(
                    policy=POLICY,
                    generation=0,
                    agent_steps=0,
                    learner_updates=0,
                    checkpoint=None,
                    hyperparameters=dict(hyperparameters),
                ),
            ),
            opponents=(Seating(players=(me, me)),),
            agent_steps=200,
            seed=4,
            may_stop_early=False,
        )
    )
    worker.close()
    assert isinstance(answer, Finished), answer
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
        # The digest of weights and optimizer.
        assert weighed.checkpoints == plain.checkpoints
        assert weighed.tallies == plain.tallies
        assert recorded == hyperparameters


def test_other_weights_lead_to_another_policy(tmp_path: Path) -> None:
    components = {"near": 1.0, "win": 1.0}
    answers: list[Any] = []
    for root, weight in (("one", 1.0), ("other", -1.0)):
        answer, recorded = train_once(
            tmp_path / root,
            "PartsAtOnce",
            components=components,
            hyperparameters={**PPO, "reward_weights.near": weight},
        )
        assert recorded["reward_weights.near"] == weight
        answers.append(answer.checkpoints)
    assert answers[0] != answers[1]
