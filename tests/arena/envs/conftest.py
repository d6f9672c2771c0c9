"""Batched views of any environment, and a second, plain loop to compare them with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from arena.config import Outcome
from arena.environment_spec import EnvironmentSpec
from arena.envs.base import BatchedEnv, Turn
from arena.envs.describe import populations_of
from arena.envs.openspiel.game import is_openspiel
from arena.envs.registry import make_environment
from arena.envs.spaces.observations import discrete_actions
from arena.envs.workers.envs import EnvWorkers
from tests.arena.samples import ASSETS, facts_of, make_env


@dataclass
class Made:
    """A batched view and what it was made of."""

    env: BatchedEnv
    spec: EnvironmentSpec
    populations: dict[str, tuple[str, ...]]

    def single(self) -> Any:
        """PettingZoo's own environment."""
        return make_environment(
            self.spec.id, kwargs=self.spec.kwargs, api=self.spec.api, launch_directory=ASSETS
        )


Make = Callable[..., Made]


@pytest.fixture(scope="session")
def assets() -> str:
    return ASSETS


@pytest.fixture(scope="session")
def env_workers() -> Iterator[Mapping[int, EnvWorkers]]:
    """Processes that step environments, by their number; started where a test needs them."""
    workers = {number: EnvWorkers(number) for number in (1, 2, 3)}
    yield workers
    for crew in workers.values():
        crew.close()


@pytest.fixture(params=["here", "workers"])
def make(request: pytest.FixtureRequest, env_workers: Mapping[int, EnvWorkers]) -> Iterator[Make]:
    """Environments that step in this process, and ones that step in two others."""
    made: list[Made] = []

    def make_one(
        environment_id: str,
        *,
        num_envs: int = 3,
        kwargs: Mapping[str, object] | None = None,
        sides: Mapping[str, tuple[str, ...]] | None = None,
        outcome: Outcome = "return",
        on_step: Callable[[], object] | None = None,
    ) -> Made:
        spec = facts_of(environment_id, kwargs)
        workers = None
        if request.param == "workers" and not is_openspiel(spec.id):
            workers = env_workers[min(2, num_envs)]
        env = make_env(
            spec,
            num_envs=num_envs,
            sides=sides,
            config={"backend": "pettingzoo", "outcome": outcome},
            on_step=on_step,
            workers=workers,
        )
        made.append(Made(env=env, spec=spec, populations=populations_of(spec)))
        return made[-1]

    yield make_one
    for one in made:
        one.env.close()


def flat(space: Mapping[str, Any], observation: Any) -> list[float]:
    """An observation as a row, the plain way."""
    if space["kind"] == "Discrete":
        return [float(int(observation) - space["start"] == i) for i in range(space["n"])]
    return [float(np.float32(value)) for value in np.asarray(observation).flatten()]


@dataclass
class Decision:
    """One decision of one agent."""

    agent: str
    observation: list[float]
    mask: list[bool] | None
    action: int


@dataclass
class Episode:
    """One episode of one environment."""

    decisions: list[Decision] = field(default_factory=list)
    returns: dict[str, float] = field(default_factory=dict)
    terminated: set[str] = field(default_factory=set)
    truncated: dict[str, list[float]] = field(default_factory=dict)
    score: list[float] = field(default_factory=list)
    over: bool = False


def play_batched(
    made: Made, *, seeds: Sequence[int], num_steps: int, policy_seed: int = 0
) -> list[list[Episode]]:
    """Random legal play; every episode of every environment, the last ones cut short."""
    generator = torch.Generator().manual_seed(policy_seed)
    turn = made.env.reset(seeds)
    assert not turn.episode_over.any()
    assert not turn.reward.any()
    episodes = [[Episode()] for _ in seeds]
    for _ in range(num_steps):
        actions = random_actions(made, turn, generator)
        for b, of_env in enumerate(episodes):
            of_env[-1].decisions += asked(made, turn, b=b, actions=actions)
        turn = made.env.step(actions)
        for b, of_env in enumerate(episodes):
            note_result(made, turn, b=b, episode=of_env[-1])
            if turn.episode_over[b]:
                of_env.append(Episode())
    return episodes


def random_actions(made: Made, turn: Turn, generator: torch.Generator) -> dict[str, torch.Tensor]:
    actions = {}
    for name, group in turn.groups.items():
        number = len(discrete_actions(made.spec.agent_specs[name].action))
        draws = torch.rand((*group.agent_index.shape, number), generator=generator)
        if group.action_mask is not None:
            draws[~group.action_mask] = -1.0
        actions[name] = draws.argmax(dim=-1)
    return actions


def asked(made: Made, turn: Turn, *, b: int, actions: Mapping[str, torch.Tensor]) -> list[Decision]:
    decisions = []
    for name, group in turn.groups.items():
        for slot, index in enumerate(group.agent_index[b].tolist()):
            if index < 0:
                continue
            mask = None if group.action_mask is None else group.action_mask[b, slot].tolist()
            decisions.append(
                Decision(
                    agent=made.spec.agents[index],
                    observation=group.observation[b, slot].tolist(),
                    mask=mask,
                    action=int(actions[name][b, slot]),
                )
            )
    order = {agent: position for position, agent in enumerate(made.spec.agents)}
    return sorted(decisions, key=lambda decision: order[decision.agent])


def note_result(made: Made, turn: Turn, *, b: int, episode: Episode) -> None:
    for column, agent in enumerate(made.spec.agents):
        reward = float(turn.reward[b, column])
        episode.returns[agent] = episode.returns.get(agent, 0.0) + reward
        assert not (turn.terminated[b, column] and turn.truncated[b, column])
        if turn.terminated[b, column]:
            assert agent not in episode.terminated
            episode.terminated.add(agent)
        if turn.truncated[b, column]:
            assert agent not in episode.truncated
            name = next(n for n, agents in made.populations.items() if agent in agents)
            position = made.populations[name].index(agent)
            episode.truncated[agent] = turn.final_observation[name][b, position].tolist()
    episode.over = bool(turn.episode_over[b])
    if episode.over:
        episode.score = turn.score[b].tolist()
    else:
        assert turn.score[b].isnan().all()


class Replay:
    """PettingZoo's own loop, with actions that were recorded."""

    def __init__(self, made: Made, *, seed: int, recorded: Episode) -> None:
        self.specs = made.spec.agent_specs
        self.agents = made.spec.agents
        self.recorded = recorded
        self.episode = Episode(returns=dict.fromkeys(made.spec.agents, 0.0))
        env = made.single()
        if made.spec.api == "aec":
            self._in_turns(env, seed=seed)
        else:
            self._at_once(env, seed=seed)
        env.close()

    def _decide(self, agent: str, observation: Any, info: Mapping[str, Any]) -> int:
        specs = self.specs[agent]
        mask = None
        if specs.mask == "observation":
            mask, observation = observation["action_mask"], observation["observation"]
        elif specs.mask == "info":
            mask = info["action_mask"]
        recorded = self.recorded.decisions[len(self.episode.decisions)]
        self.episode.decisions.append(
            Decision(
                agent=agent,
                observation=flat(specs.observation, observation),
                mask=None if mask is None else [bool(legal) for legal in mask],
                action=recorded.action,
            )
        )
        return recorded.action + discrete_actions(specs.action).start

    def _end(self, agent: str, observation: Any, *, terminated: bool) -> None:
        if terminated:
            self.episode.terminated.add(agent)
            return
        specs = self.specs[agent]
        if specs.mask == "observation":
            observation = observation["observation"]
        self.episode.truncated[agent] = flat(specs.observation, observation)

    def _in_turns(self, env: Any, *, seed: int) -> None:
        env.reset(seed=seed)
        for agent in env.agent_iter():
            observation, reward, terminated, truncated, info = env.last()
            # `last()` returns the sum of rewards since the agent's last turn.
            self.episode.returns[agent] += float(reward)
            if terminated or truncated:
                self._end(agent, observation, terminated=terminated)
                env.step(None)
            else:
                env.step(self._decide(agent, observation, info))
        self.episode.over = True

    def _at_once(self, env: Any, *, seed: int) -> None:
        observations, infos = env.reset(seed=seed)
        while env.agents:
            actions = {
                agent: self._decide(agent, observations[agent], infos[agent])
                for agent in self.agents
                if agent in env.agents and agent in observations
            }
            observations, rewards, terminations, truncations, infos = env.step(actions)
            for agent, reward in rewards.items():
                self.episode.returns[agent] += float(reward)
            for agent in terminations:
                if terminations[agent] or truncations[agent]:
                    self._end(agent, observations.get(agent), terminated=bool(terminations[agent]))
        self.episode.over = True


def assert_same(batched: Episode, plain: Episode) -> None:
    """Two ways to play one episode agree."""
    assert batched.decisions == plain.decisions
    assert batched.returns == pytest.approx(plain.returns, rel=1e-5, abs=1e-5)
    assert batched.terminated == plain.terminated
    assert batched.truncated == plain.truncated
    assert batched.over
