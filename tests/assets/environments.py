"""Environments that do all that PettingZoo allows, and some that do what it forbids.

Found by id: ``environments:ScriptedTurns`` with this directory as the launch directory.
"""

from __future__ import annotations

import importlib
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

Entry = Mapping[str, Any]
Array = npt.NDArray[Any]

NUM_ACTIONS = 3
CLOCKWORK: tuple[Entry, ...] = ({"agent": "a"}, {"agent": "b"})


class ScriptedTurns(AECEnv):  # type: ignore[misc]
    """Takes turns by a script: each entry says who acts and what comes of it.

    An entry has ``agent``, and may have ``rewards`` (by agent; the acting agent's action is added
    to its own), ``terminate``, ``truncate`` and ``join`` (lists of agents). Entries of agents that
    are not there are skipped; after the last everybody left terminates. An observation is (a random
    number of the episode, the entry's index, the agent's index).
    """

    metadata = {"name": "scripted_turns", "render_modes": []}  # noqa: RUF012
    render_mode = None

    def __init__(
        self,
        *,
        agents: Sequence[str] = ("a", "b"),
        first: Sequence[str] | None = None,
        script: Sequence[Entry] = CLOCKWORK,
        dead_first: bool = True,
    ) -> None:
        self.possible_agents: list[Any] = list(agents)
        self._first = list(first or agents)
        self._script = list(script)
        self._dead_first = dead_first
        self._spaces: dict[str, Any] = {a: spaces.Box(0.0, 100.0, (3,)) for a in agents}
        self._actions: dict[str, Any] = {a: spaces.Discrete(NUM_ACTIONS) for a in agents}

    def observation_space(self, agent: str) -> Any:
        return self._spaces[agent]

    def action_space(self, agent: str) -> Any:
        return self._actions[agent]

    def reset(self, seed: int | None = None, options: object = None) -> None:
        self._luck = np.random.default_rng(seed).random()
        self._at = 0
        self.agents = list(self._first)
        self._seen = set(self._first)
        self.rewards: dict[str, Any] = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        self._select()

    def observe(self, agent: str) -> Any:
        index = self.possible_agents.index(agent)
        return np.array([self._luck, self._at, index], dtype=np.float32)

    def close(self) -> None:
        pass

    def step(self, action: int | None) -> None:
        agent = self.agent_selection
        if self._is_dead(agent):
            assert action is None
            self._remove(agent)
            return
        assert self.action_space(agent).contains(action)
        entry = self._script[self._at]
        assert entry["agent"] == agent
        self._at += 1
        for newcomer in entry.get("join", ()):
            self._add(newcomer)
        self._cumulative_rewards[agent] = 0.0
        self._clear_rewards()
        for other, reward in {agent: 0.0, **entry.get("rewards", {})}.items():
            if other in self.agents:
                self.rewards[other] = reward + (action if other == agent else 0)
        self._accumulate_rewards()
        dying = [other for other in self.agents if self._is_dead(other)]
        for flags, names in (
            (self.terminations, entry.get("terminate", ())),
            (self.truncations, entry.get("truncate", ())),
        ):
            living = [a for a in names if a in self.agents and a not in dying]
            flags.update(dict.fromkeys(living, True))
        self._select()

    def _is_dead(self, agent: str) -> bool:
        return bool(self.terminations[agent] or self.truncations[agent])

    def _add(self, agent: str) -> None:
        if agent in self._seen:
            return  # no agent comes back
        self._seen.add(agent)
        self.agents.append(agent)
        self.rewards[agent] = self._cumulative_rewards[agent] = 0.0
        self.terminations[agent] = self.truncations[agent] = False
        self.infos[agent] = {}

    def _remove(self, agent: str) -> None:
        for facts in (
            self.rewards,
            self._cumulative_rewards,
            self.terminations,
            self.truncations,
            self.infos,
        ):
            del facts[agent]
        self.agents.remove(agent)
        self._clear_rewards()
        self._select()

    def _select(self) -> None:
        dead = [agent for agent in self.agents if self._is_dead(agent)]
        if dead and self._dead_first:
            self.agent_selection = dead[0]
            return
        while self._at < len(self._script):
            agent = self._script[self._at]["agent"]
            if agent in self.agents:
                # A dead agent stays until its next turn, and may still receive rewards.
                self.agent_selection = agent
                return
            self._at += 1
        for agent in self.agents:
            if not self._is_dead(agent):
                self.terminations[agent] = True
        if self.agents:
            self.agent_selection = self.agents[0]


class FaultyTurns(ScriptedTurns):
    """Two agents take turns; what ``fault`` names goes wrong at the third decision."""

    def __init__(self, *, fault: str) -> None:
        super().__init__(script=CLOCKWORK * 5)
        self._fault = fault

    def _fails(self, fault: str) -> bool:
        return self._fault == fault and self._at >= 2

    def reset(self, seed: int | None = None, options: object = None) -> None:
        super().reset(seed)
        if self._fault == "reset_raises":
            raise RuntimeError("no board")
        if self._fault == "reset_into_death":
            self.terminations["a"] = True

    def observe(self, agent: str) -> Any:
        observation = super().observe(agent)
        if self._fails("nan_observation"):
            observation[1] = np.nan
        if self._fails("huge_observation"):
            return observation.astype(np.float64) + 1e300
        if self._fails("wrong_shape"):
            return observation[:2]
        if self._fails("wrong_dtype"):
            return observation.astype(str)
        if self._fails("no_observation"):
            return None
        return observation

    def step(self, action: int | None) -> None:
        super().step(action)
        if self._fails("step_raises"):
            raise KeyError("board")
        if self._fails("nan_reward"):
            self.rewards["b"] = float("nan")
        if self._fails("infinite_reward"):
            self.rewards["b"] = np.float64("-inf")
        if self._fails("array_reward"):
            self.rewards["b"] = np.ones(1)
        if self._fails("text_reward"):
            self.rewards["b"] = "much"
        if self._fails("strange_agent"):
            self.rewards["c"] = 1.0

    def _remove(self, agent: str) -> None:
        # The grass agent stays for ever.
        self.agent_selection = agent

    def _select(self) -> None:
        super()._select()
        if self._fails("only_dead_on_turn"):
            self.terminations["a"] = True
            self.agent_selection = "a"


class NeverRemovesTheDead(ScriptedTurns):
    """All die after four decisions, and none ever leaves ``agents``."""

    def __init__(self) -> None:
        super().__init__(script=CLOCKWORK * 2)

    def _remove(self, agent: str) -> None:
        self._clear_rewards()


class EmptiesAgents(ScriptedTurns):
    """Ends by emptying ``agents``, without a word on who terminated."""

    def __init__(self) -> None:
        super().__init__(script=CLOCKWORK * 2)

    def _select(self) -> None:
        super()._select()
        if self._at == 3:
            self.agents = []


class MaskedTurns(ScriptedTurns):
    """Masks in ``info`` or in the observation; at the k-th decision only action k % n is legal."""

    def __init__(self, *, where: str, empty_at: int | None = None, dtype: str = "int8") -> None:
        super().__init__(script=CLOCKWORK * 3)
        self._where = where
        self._empty_at = empty_at
        self._dtype = dtype
        if where == "observation":
            mask = spaces.MultiBinary(NUM_ACTIONS)
            self._spaces = {
                agent: spaces.Dict({"observation": space, "action_mask": mask})
                for agent, space in self._spaces.items()
            }

    def mask(self) -> Array:
        mask = np.zeros(NUM_ACTIONS, dtype=self._dtype)
        if self._at != self._empty_at:
            mask[self._at % NUM_ACTIONS] = 1
        return mask

    def _select(self) -> None:
        super()._select()
        if self._where == "info" and self.agents:
            for agent in self.agents:
                self.infos[agent] = {}
            self.infos[self.agent_selection] = {"action_mask": self.mask()}

    def observe(self, agent: str) -> Any:
        observation = super().observe(agent)
        if self._where == "info":
            return observation
        return {"observation": observation, "action_mask": self.mask()}

    def step(self, action: int | None) -> None:
        if action is not None:
            assert self.mask()[action], "illegal action"
        super().step(action)


class StartsAtOne(ScriptedTurns):
    """Actions are 1, 2, 3 and observations -1, 0, 1: Discrete spaces that do not start at 0."""

    def __init__(self) -> None:
        super().__init__(script=CLOCKWORK * 3)
        self._spaces = {a: spaces.Discrete(3, start=-1) for a in self.possible_agents}
        self._actions = {a: spaces.Discrete(3, start=1) for a in self.possible_agents}

    def observe(self, agent: str) -> Any:
        return np.int64(self._at % 3 - 1)


class AliasingTurns(ScriptedTurns):
    """Returns the same array each time."""

    def __init__(self) -> None:
        super().__init__(script=CLOCKWORK * 6)
        self._array = np.zeros(3, dtype=np.float32)

    def observe(self, agent: str) -> Any:
        self._array[:] = super().observe(agent)
        return self._array


class UnseededTurns(ScriptedTurns):
    """Draws its luck from nowhere."""

    def reset(self, seed: int | None = None, options: object = None) -> None:
        super().reset(None)


class WinnerInInfo(ScriptedTurns):
    """``info["winner"]`` of every agent is what it was made with, at the end."""

    def __init__(self, *, winner: str | None) -> None:
        super().__init__(script=CLOCKWORK * 2)
        self._winner = winner

    def _select(self) -> None:
        super()._select()
        if self._at == len(self._script):
            for agent in self.agents:
                self.infos[agent] = {"winner": self._winner}


class ScriptedParallel(ParallelEnv):  # type: ignore[misc]
    """All decide at once, by a script: entry t says what comes of step t.

    An entry may have ``rewards``, ``terminate``, ``truncate``, ``join`` and ``hide`` (agents that
    live but have no observation after this step). After the last everybody left is truncated.
    """

    metadata = {"name": "scripted_parallel", "render_modes": []}  # noqa: RUF012
    render_mode = None

    def __init__(
        self,
        *,
        agents: Sequence[str] = ("a", "b", "c"),
        first: Sequence[str] | None = None,
        script: Sequence[Entry] = ({}, {}, {}),
        fault: str = "",
    ) -> None:
        self.possible_agents = list(agents)
        self._first = list(first or agents)
        self._script = list(script)
        self._fault = fault
        self._spaces = {a: spaces.Box(0.0, 100.0, (3,), np.float32) for a in agents}
        self._actions = {a: spaces.Discrete(NUM_ACTIONS) for a in agents}

    def observation_space(self, agent: str) -> Any:
        return self._spaces[agent]

    def action_space(self, agent: str) -> Any:
        return self._actions[agent]

    def close(self) -> None:
        pass

    def _observations(self, agents: Sequence[str]) -> dict[str, Any]:
        return {
            agent: np.array(
                [self._luck, self._at, self.possible_agents.index(agent)], dtype=np.float32
            )
            for agent in agents
        }

    def reset(
        self, seed: int | None = None, options: object = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        self._luck = np.random.default_rng(seed).random()
        self._at = 0
        self.agents = list(self._first)
        self._seen = set(self._first)
        self._hidden: set[str] = set()
        return self._observations(self.agents), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, int]) -> tuple[dict[str, Any], ...]:
        assert set(actions) == set(self.agents) - self._hidden
        entry = self._script[self._at]
        self._at += 1
        acting = list(self.agents)
        rewards = {agent: float(actions.get(agent, 0)) for agent in acting}
        for agent, reward in entry.get("rewards", {}).items():
            if agent in rewards:
                rewards[agent] += reward
        known = self.agents if self._fault == "revives" else self._seen
        joining = [a for a in dict.fromkeys(entry.get("join", ())) if a not in known]
        self._seen.update(joining)
        present = acting + joining
        last = self._at == len(self._script)
        terminations = {agent: agent in entry.get("terminate", ()) for agent in present}
        truncations = {agent: last or agent in entry.get("truncate", ()) for agent in present}
        dead = {agent for agent in present if terminations[agent] or truncations[agent]}
        self.agents = [agent for agent in present if agent not in dead]
        self._hidden = set(entry.get("hide", ())) & set(self.agents)
        observations = self._observations([a for a in present if a not in self._hidden])
        infos: dict[str, dict[str, Any]] = {agent: {} for agent in present}
        if self._fault == "nan_observation" and self._at == 2:
            observations["b"][0] = np.nan
        if self._fault == "infinite_reward" and self._at == 2:
            rewards["b"] = np.inf
        if self._fault == "step_raises" and self._at == 2:
            raise ValueError("no board")
        if self._fault == "no_final_observation" and last:
            del observations["b"]
        return observations, rewards, terminations, truncations, infos


class PictureTurns(ScriptedTurns):
    """An observation space that is not supported."""

    def __init__(self) -> None:
        super().__init__()
        inner = spaces.Dict({"map": spaces.Text(5)})
        self._spaces = dict.fromkeys(self.possible_agents, inner)


class Noisy(ScriptedTurns):
    """Prints, from Python and from below."""

    def reset(self, seed: int | None = None, options: object = None) -> None:
        import os

        print('{"spec": "not this"}', flush=True)  # noqa: T201
        os.write(1, b"nor this\n")
        super().reset(seed)


class Abrupt(ScriptedTurns):
    """Ends the process."""

    def reset(self, seed: int | None = None, options: object = None) -> None:
        import os
        import signal
        import sys

        sys.stderr.write("segmentation soon\n")
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGSEGV)


class Endless(ScriptedTurns):
    """Never returns from reset."""

    def reset(self, seed: int | None = None, options: object = None) -> None:
        import threading

        threading.Event().wait()


def needs_a_missing_package() -> AECEnv:
    importlib.import_module("package_that_is_not_there")
    raise AssertionError("it must not be there")


def not_an_environment() -> object:
    return object()


def higher_index_wins(
    returns: dict[str, float], infos: dict[str, dict[str, object]]
) -> dict[str, float]:
    """An outcome."""
    return {"a": 0.25, "b": 0.75}


def minus_the_larger(
    returns: dict[str, float], infos: dict[str, dict[str, object]]
) -> dict[str, float]:
    """An outcome of cooperation: an objective that is no share."""
    return {"team": -max(returns.values())}


def names_no_side(
    returns: dict[str, float], infos: dict[str, dict[str, object]]
) -> dict[str, float]:
    """An outcome that is wrong."""
    return {"a": 1.0}


class Long(ParallelEnv):  # type: ignore[misc]
    """Two agents for ``length`` steps.

    Args:
        length: Of an episode.
        megabytes: That each environment holds.
        fault: What goes wrong in the first step: it ``raises``, ``dies`` or ``hangs``.
        started: File that the step makes which hangs.
    """

    metadata = {"name": "long", "render_modes": []}  # noqa: RUF012
    render_mode = None

    def __init__(
        self, *, length: int = 1000, megabytes: int = 0, fault: str = "", started: str = ""
    ) -> None:
        self.possible_agents: list[Any] = ["a", "b"]
        self._length, self._fault, self._started = length, fault, started
        self._held = np.ones(megabytes << 20, dtype=np.uint8)
        self._space, self._actions = spaces.Box(0.0, 1.0, (1,)), spaces.Discrete(2)

    def observation_space(self, agent: str) -> Any:
        return self._space

    def action_space(self, agent: str) -> Any:
        return self._actions

    def reset(self, seed: int | None = None, options: object = None) -> Any:
        self.agents, self._at = list(self.possible_agents), 0
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions: Mapping[str, int]) -> Any:
        if self._fault == "raises":
            raise RuntimeError("no more")
        if self._fault == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._fault == "hangs":
            Path(self._started).touch()
            signal.pause()
        self._at += 1
        acted, seen, is_over = list(self.agents), self._seen(), self._at == self._length
        self.agents = [] if is_over else acted
        ends, goes_on = dict.fromkeys(acted, is_over), dict.fromkeys(acted, False)
        return seen, dict.fromkeys(acted, 0.0), ends, goes_on, {agent: {} for agent in acted}

    def _seen(self) -> dict[str, Array]:
        return {agent: np.zeros(1, dtype=np.float32) for agent in self.agents}
