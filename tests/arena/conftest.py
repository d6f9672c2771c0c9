"""A scripted environment whose observations say where they come from; one thread for torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest
import torch

from arena.envs.base import BatchedEnv, Group, Turn

Length = Callable[[int, int], int]
Reward = Callable[[int, int, int, int], float]


@dataclass
class ScriptedEnv:
    """B environments in which episode k of environment b lasts ``length(seed of b, k)`` steps.

    An observation is (seed, episode, step, agent): the payload that tests trace. In turn order the
    agents decide one after the other, else all at once. Action 0 is illegal at even steps. The
    agent with the higher return wins.
    """

    num_envs: int
    agents: tuple[str, ...] = ("a", "b")
    populations: Mapping[str, tuple[str, ...]] = field(
        default_factory=lambda: {"player": ("a", "b")}
    )
    in_turns: bool = True
    truncates: bool = False
    length: Length = lambda seed, episode: 3
    reward: Reward = lambda seed, episode, step, agent: 0.0
    num_sides: int = 2
    decisions: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    """(seed, episode, step, agent, action) of everything that was carried out."""

    def reset(self, seeds: Sequence[int]) -> Turn:
        self.seeds = [seed % 1_000_000 for seed in seeds]
        self.episode = [0] * self.num_envs
        self.time = [0] * self.num_envs
        self.returns = torch.zeros(self.num_envs, len(self.agents))
        self.halted = torch.zeros(self.num_envs, dtype=torch.bool)
        self.resumed = torch.zeros(self.num_envs, dtype=torch.bool)
        return self._turn(
            torch.zeros(self.num_envs, len(self.agents)),
            torch.zeros(self.num_envs, dtype=torch.bool),
            {name: torch.zeros(self.num_envs, len(p), 4) for name, p in self.populations.items()},
        )

    def step(self, actions: Mapping[str, torch.Tensor]) -> Turn:
        reward = torch.zeros(self.num_envs, len(self.agents))
        over = torch.zeros(self.num_envs, dtype=torch.bool)
        final = {
            name: torch.full((self.num_envs, len(p), 4), torch.nan)
            for name, p in self.populations.items()
        }
        for b in range(self.num_envs):
            if self.halted[b]:
                continue
            where = (self.seeds[b], self.episode[b], self.time[b])
            for name in self.populations:
                for slot, agent in enumerate(self._deciding(b, name)):
                    if agent >= 0:
                        action = int(actions[name][b, slot])
                        assert self._legal(self.time[b])[action], (where, action)
                        self.decisions.append((*where, agent, action))
            for agent in range(len(self.agents)):
                reward[b, agent] = self.reward(*where, agent)
            self.time[b] += 1
            over[b] = self.time[b] >= self.length(self.seeds[b], self.episode[b])
            for name, members in self.populations.items():
                for position, agent_name in enumerate(members):
                    if over[b]:
                        final[name][b, position] = self._observe(b, self.agents.index(agent_name))
        self.halted &= ~self.resumed
        self.resumed.zero_()
        return self._turn(reward, over, final)

    def halt(self, environments: torch.Tensor) -> None:
        self.halted |= environments

    def resume(self, environments: torch.Tensor) -> None:
        self.resumed |= environments

    def close(self) -> None:
        self.decisions.clear()

    def _turn(
        self, reward: torch.Tensor, over: torch.Tensor, final: dict[str, torch.Tensor]
    ) -> Turn:
        self.returns += reward
        score = torch.full((self.num_envs, self.num_sides), torch.nan)
        episode = torch.tensor(self.episode)
        for b in over.nonzero().flatten().tolist():
            if self.num_sides > 1:
                mine, others = self.returns[b, :, None], self.returns[b, None, :]
                won = (mine > others).float() + 0.5 * (mine == others).float()
                score[b] = won.sum(dim=1) - 0.5
            self.returns[b] = 0.0
            self.episode[b] += 1
            self.time[b] = 0
        ended = over[:, None].expand(-1, len(self.agents)).clone()
        nobody = torch.zeros_like(ended)
        return Turn(
            groups={name: self._group(name) for name in self.populations},
            reward=reward,
            terminated=nobody if self.truncates else ended,
            truncated=ended if self.truncates else nobody,
            final_observation=final,
            episode_over=over,
            score=score,
            episode=episode,
        )

    def _group(self, population: str) -> Group:
        index = torch.tensor([self._deciding(b, population) for b in range(self.num_envs)])
        observation = torch.full((*index.shape, 4), torch.nan)
        mask = torch.zeros(*index.shape, 3, dtype=torch.bool)
        for b, slot in (index >= 0).nonzero().tolist():
            observation[b, slot] = self._observe(b, int(index[b, slot]))
            mask[b, slot] = torch.tensor(self._legal(self.time[b]))
        return Group(agent_index=index, observation=observation, action_mask=mask)

    def _deciding(self, b: int, population: str) -> list[int]:
        members = [self.agents.index(agent) for agent in self.populations[population]]
        if self.halted[b]:
            return [-1] * (1 if self.in_turns else len(members))
        if not self.in_turns:
            return members
        on_turn = self.time[b] % len(self.agents)
        return [on_turn if on_turn in members else -1]

    def _observe(self, b: int, agent: int) -> torch.Tensor:
        return torch.tensor([self.seeds[b], self.episode[b], self.time[b], agent]).float()

    @staticmethod
    def _legal(time: int) -> list[bool]:
        return [time % 2 == 1, True, True]


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """As in a learner: threads that wait for each other on busy cores make small tests slow."""
    torch.set_num_threads(1)


@pytest.fixture
def scripted_env() -> type[ScriptedEnv]:
    """The class, because test modules cannot import from each other."""
    return ScriptedEnv


def _is_batched_env(env: ScriptedEnv) -> BatchedEnv:
    return env
