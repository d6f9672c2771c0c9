"""Random legal play: of the batched view, of a bare batched game, and of a plain Python loop.

Shapes: B environments or games, S decisions of a group at once, n actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from arena.environment_spec import AgentSpec, EnvironmentSpec
from arena.envs.base import BatchedEnv, Group
from arena.envs.batched.game import BatchedGame
from arena.envs.pettingzoo.cycle_to_parallel import holder_of_state, strip_checking_wrappers
from arena.envs.random_play import random_answers, random_turns
from arena.envs.registry import make_of_spec
from arena.envs.spaces.observations import discrete_actions
from arena.spaces import ActionLayout

from .measure import Work

MAX_KEY = 2**31


def random_play(
    env: BatchedEnv, *, actions: Mapping[str, ActionLayout], generator: torch.Generator
) -> Work:
    """Return random play: one call is one step of a `BatchedEnv`, uniform over legal actions, and
    returns the number of decisions.

    Args:
        env: Batch of environments, which is reset.
        actions: Layouts by population.
        generator: Generator of the actions, on the environments' device.
    """
    turns = random_turns(env, seeds=range(env.num_envs), actions=actions, generator=generator)
    return lambda: count_decisions(next(turns)[0].groups)


class RandomGame:
    """Random play: one call is one step of a bare `BatchedGame`, without view, seeds, scores,
    checks.

    Args:
        game: The rules; all games are begun anew.
        num_games: Number of games, B.
        generator: Generator of actions and chance, on the game's device.
    """

    def __init__(self, game: BatchedGame, *, num_games: int, generator: torch.Generator) -> None:
        self._game = game
        self._generator = generator
        self._actions = [
            ActionLayout.from_json(game.agent_specs[agents[0]].action, continuous="squashed")
            for agents in game.groups
        ]
        self._num_games = num_games
        self._begin(torch.ones(num_games, dtype=torch.bool, device=generator.device))

    def __call__(self) -> int:
        """Step, begin anew what is over, and return the number of decisions."""
        groups = self._game.decisions()
        decisions = sum(int((group.agent_index >= 0).sum()) for group in groups)
        actions = [
            random_answers(group, layout=layout, generator=self._generator)
            for group, layout in zip(groups, self._actions, strict=True)
        ]
        result = self._game.step(actions)
        ended = result.terminated
        if result.truncated is not None:
            ended = ended | result.truncated
        # [B, A] -> [B]: a game is over when all its agents have ended.
        over = ended.all(dim=1)
        if bool(over.any()):
            self._begin(over)
        return decisions

    def _begin(self, games: torch.Tensor) -> None:
        key = torch.randint(
            MAX_KEY, (self._num_games,), generator=self._generator, device=games.device
        )
        self._game.reset(games, key=key)


class PlainLoop:
    """Random play: one call steps each of B PettingZoo environments once, in a Python loop.

    The plain way without a batched view; without PettingZoo's checking wrappers.

    Args:
        spec: The environment's facts.
        num_envs: Number of environments, B.
        launch_directory: First directory in which user code is looked for.
    """

    def __init__(self, spec: EnvironmentSpec, *, num_envs: int, launch_directory: str) -> None:
        self._specs = spec.agent_specs
        self._is_aec = spec.api == "aec"
        self._rng = np.random.default_rng(0)
        has_masks = all(agent.mask is not None for agent in spec.agent_specs.values())
        self._envs: list[Any] = [
            strip_checking_wrappers(
                make_of_spec(spec, launch_directory=launch_directory),
                has_masks=has_masks,
            )
            for _ in range(num_envs)
        ]
        self._states = [holder_of_state(env) if self._is_aec else env for env in self._envs]
        # Only parallel environments return all observations at once, so only these are kept here.
        self._seen = [env.reset(seed=seed) for seed, env in enumerate(self._envs)]

    def __call__(self) -> int:
        """Step all, reset what is over, and return the number of decisions."""
        # The draws are made in one call, because a NumPy call for each environment would be slower.
        draws = self._rng.random(len(self._envs)).tolist()
        step = self._step_in_turns if self._is_aec else self._step_at_once
        return sum(step(index, draw) for index, draw in enumerate(draws))

    def close(self) -> None:
        """Release what the environments hold."""
        for env in self._envs:
            env.close()

    def _step_in_turns(self, index: int, draw: float) -> int:
        env, state = self._envs[index], self._states[index]
        agent = state.agent_selection
        observation, info = env.observe(agent), state.infos.get(agent)
        env.step(_random_action(self._specs[agent], observation, info, draw=draw))
        # PettingZoo's AEC API wants None from agents whose episode has ended.
        while state.agents and _is_dead(state):
            env.step(None)
        if not state.agents:
            # The environment is reset after the last agent has ended, not after the first one.
            env.reset(seed=index)
        return 1

    def _step_at_once(self, index: int, draw: float) -> int:
        # All agents share one draw: each action is still uniform, and their correlation does not
        # matter.
        env, (observations, infos) = self._envs[index], self._seen[index]
        actions = {
            agent: _random_action(
                self._specs[agent], observations[agent], infos.get(agent), draw=draw
            )
            for agent in env.agents
            if agent in observations
        }
        observations, _, _, _, infos = env.step(actions)
        self._seen[index] = (observations, infos) if env.agents else env.reset(seed=index)
        return len(actions)


def _is_dead(state: Any) -> bool:  # noqa: ANN401
    agent = state.agent_selection
    return bool(state.terminations[agent] or state.truncations[agent])


def _random_action(
    spec: AgentSpec,
    observation: Any,  # noqa: ANN401
    info: Mapping[str, Any] | None,
    *,
    draw: float,
) -> int:
    """Return a legal action, uniform where ``draw`` is uniform in [0, 1)."""
    actions = discrete_actions(spec.action)
    if spec.mask is None:
        return actions[int(draw * len(actions))]
    holder = observation if spec.mask == "observation" else info
    assert holder is not None
    legal = np.flatnonzero(holder["action_mask"])
    # floor(u n) is uniform over 0 to n - 1 for u in [0, 1).
    return actions[int(legal[int(draw * len(legal))])]


def count_decisions(groups: Mapping[str, Group]) -> int:
    """Count the decisions that a turn asks for."""
    return sum(int((group.agent_index >= 0).sum()) for group in groups.values())
