"""A task with a known answer: recall a symbol twice. Reward 1 for both right, at the end."""

from __future__ import annotations

from typing import Literal

import pytest
import torch

from arena.config import NetworkConfig
from arena.core import ActorInput
from arena.envs.base import Group, Turn
from arena.experience import Rollout
from arena.learning.hyperparameters import PpoSettings
from arena.learning.ppo import Ppo
from arena.rollout.buffer import RolloutBuffer
from tests.arena.samples import make_ppo, make_turn
from tests.layouts import discrete

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
        # Discounted once per own decision still to come.
        torch.testing.assert_close(
            ppo.value(ActorInput(observation=rows)).mean(), torch.tensor(value), rtol=0, atol=0.08
        )
        task.step((task.symbol + second)[:, None] % NUM_SYMBOLS)
