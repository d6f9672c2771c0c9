"""Plays one environment through PettingZoo's own interface, and watches what it gives back.

The batched view checks what training needs. Here is what only a look from outside shows: which
action of whom an environment does not take, who comes when, arrays that change after they were
returned, observations that never change, numbers outside of the declared bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from arena.envs.acting import RandomActing
from arena.envs.findings import MEND_STEP, Finding, finding_of
from arena.envs.spec import EnvironmentSpec
from arena.errors import EnvironmentFault

SEED = 7
KEPT = 4
"""Observations of each agent that are compared with what they were."""

MAX_EPISODES = 32

MAX_DEAD = 2
"""How often dead agents, one after the other, may be on turn, times the number of agents."""

NUM_SHOWN = 12
"""Agents of a turn order that are named."""


@dataclass(slots=True, kw_only=True)
class Look:
    """What was seen.

    Attributes:
        decisions: That were made.
        orders: Who decided in each episode, in turns.
        agents: Who was ever asked.
        aliased: The first agent one of whose observations changed after it was returned.
        out_of_bounds: By agent, the first observation that its space does not contain.
        unchanging: By agent, the observation that it had at each of its decisions, two at least.
        problems: Actions that were not taken, agents that there should not be or be more of.
    """

    decisions: int = 0
    orders: list[list[str]] = field(default_factory=list)
    agents: set[str] = field(default_factory=set)
    aliased: str | None = None
    out_of_bounds: dict[str, str] = field(default_factory=dict)
    unchanging: dict[str, str] = field(default_factory=dict)
    problems: list[Finding] = field(default_factory=list)

    @property
    def turn_order(self) -> str:
        """In words, of an environment in turns."""
        longest: list[str] = max(self.orders, key=len, default=[])
        cycle = list(dict.fromkeys(longest))
        if len(cycle) > NUM_SHOWN:
            return f"one at a time, {len(cycle)} agents"
        follower = dict(zip(cycle, cycle[1:] + cycle[:1], strict=True))
        regular = all(
            follower.get(one) == other for order in self.orders for one, other in pairwise(order)
        )
        return f"{', '.join(cycle)} {'in turn' if regular else 'in changing order'}"


_CHANGED = object()
"""In place of an agent's first observation, when another one has been seen."""


class _Untaken(Exception):
    """An action was not taken."""


def look(env: Any, *, spec: EnvironmentSpec, num_decisions: int) -> Look:  # noqa: ANN401
    """Play random legal actions.

    Args:
        env: A ``pettingzoo.AECEnv`` or ``ParallelEnv``.
        spec: Its facts.
        num_decisions: After so many it ends, or after `MAX_EPISODES`.
    """
    seen = Look()
    watch = _Watch(env, spec=spec, seen=seen)
    play = _play_parallel if spec.api == "parallel" else _play_in_turns
    acting = RandomActing(spec, seed=SEED)
    try:
        for _ in range(MAX_EPISODES):
            watch.begin()
            for _ in play(env, acting=acting, watch=watch):
                if seen.decisions >= num_decisions:
                    return seen
    except _Untaken as untaken:
        seen.problems.append(Finding(problem=str(untaken), mend=MEND_STEP))
    except EnvironmentFault as fault:
        seen.problems.append(finding_of(fault, where=watch.where))
    except Exception as error:
        # A user's code may raise anything: here reset, last and observe, or a mask that is none.
        seen.problems.append(finding_of(EnvironmentFault(_said(error)), where=watch.where))
    return seen


class _Watch:
    """Compares what was returned with what it should be, and with what it becomes."""

    def __init__(self, env: Any, *, spec: EnvironmentSpec, seen: Look) -> None:  # noqa: ANN401
        self._env = env
        self._spec = spec
        self._seen = seen
        self._returned: list[tuple[str, npt.NDArray[Any], npt.NDArray[Any]]] = []
        self._first: dict[str, object] = {}
        self._began = 0
        self.seed = SEED - 1
        """Of the episode."""

    def begin(self) -> None:
        """Another episode."""
        self.seed += 1
        self._began = self._seen.decisions
        self._seen.orders.append([])

    def note(self, agent: str, observation: object) -> None:
        """An observation came back."""
        seen = self._seen
        if agent not in self._spec.agent_specs:
            raise EnvironmentFault(f"agent {agent!r} has an observation but is no possible agent")
        if seen.aliased is None:
            seen.aliased = self._changed()
            self._returned += [(agent, array, array.copy()) for array in _arrays(observation)]
            del self._returned[: -KEPT * len(self._spec.agents)]
        if agent not in seen.out_of_bounds:
            space = self._env.observation_space(agent)
            if not _contains(space, observation):
                seen.out_of_bounds[agent] = _outside(observation, space)
        if agent not in self._first:
            self._first[agent] = deepcopy(observation)
        elif self._first[agent] is not _CHANGED:
            if _equal(self._first[agent], observation):
                seen.unchanging[agent] = _values(observation)
            else:
                self._first[agent] = _CHANGED
                seen.unchanging.pop(agent, None)

    def decides(self, agent: str) -> None:
        """An agent is asked."""
        self._seen.decisions += 1
        self._seen.agents.add(agent)
        self._seen.orders[-1].append(agent)

    def check_rewarded(self, rewards: Mapping[str, object]) -> None:
        """Whom a step has paid."""
        for agent in rewards:
            if agent not in self._spec.agent_specs:
                raise EnvironmentFault(f"agent {agent!r} has a reward but is no possible agent")

    def untaken(self, actions: object, error: Exception) -> _Untaken:
        """What is said of a step that raised."""
        return _Untaken(f"{self.where}: step({actions!r}) {_said(error)}")

    @property
    def where(self) -> str:
        """How far the episode is."""
        decision = self._seen.decisions - self._began
        return f"decision {decision} of the episode of reset(seed={self.seed})"

    def _changed(self) -> str | None:
        for owner, array, copy in self._returned:
            if not np.array_equal(array, copy, equal_nan=array.dtype.kind == "f"):
                return owner
        return None


def _said(error: Exception) -> str:
    return f"raised {type(error).__name__}: {error}"


def _contains(space: Any, observation: object) -> bool:  # noqa: ANN401
    try:
        return bool(space.contains(observation))
    except Exception:
        # A user's space, asked about a user's observation.
        return False


def _outside(observation: object, space: object) -> str:
    return f"{_values(observation)} is not in {' '.join(str(space).split())[:120]}"


def _values(observation: object) -> str:
    values = ", ".join(
        f"{array.dtype}{array.shape} in [{array.min()}, {array.max()}]"
        for array in _arrays(observation)
        if array.size and array.dtype.kind in "fiub"
    )
    return values or type(observation).__name__


def _equal(one: object, other: object) -> bool:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)


def _arrays(observation: object) -> Iterator[npt.NDArray[Any]]:
    """All arrays in a nested observation."""
    if isinstance(observation, np.ndarray):
        yield observation
    elif isinstance(observation, Mapping):
        for part in observation.values():
            yield from _arrays(part)
    elif isinstance(observation, tuple):
        for part in observation:
            yield from _arrays(part)


def _play_in_turns(env: Any, *, acting: RandomActing, watch: _Watch) -> Iterator[None]:  # noqa: ANN401
    env.reset(seed=watch.seed)
    patience = MAX_DEAD * len(acting.agents)
    num_dead = 0
    for agent in env.agent_iter():
        observation, _, terminated, truncated, info = env.last()
        if terminated or truncated:
            num_dead += 1
            if num_dead > patience:
                # If all are dead, they just stay: PettingZoo's test says so.
                _check_all_dead(env, last=agent)
                return
            env.step(None)
            continue
        num_dead = 0
        watch.note(agent, observation)
        watch.decides(agent)
        action = acting.act(agent, observation, info)
        try:
            env.step(action)
        except Exception as error:
            raise watch.untaken(action, error) from error
        watch.check_rewarded(env.rewards)
        yield


def _check_all_dead(env: Any, *, last: str) -> None:  # noqa: ANN401
    if not all(env.terminations[agent] or env.truncations[agent] for agent in env.agents):
        raise EnvironmentFault(
            f"only dead agents are on turn, the last is {last!r}, but some of {env.agents} live"
        )


def _play_parallel(env: Any, *, acting: RandomActing, watch: _Watch) -> Iterator[None]:  # noqa: ANN401
    observations, infos = env.reset(seed=watch.seed)
    while env.agents:
        for agent, observation in observations.items():
            watch.note(agent, observation)
        actions = {
            agent: acting.act(agent, observations[agent], infos.get(agent))
            for agent in env.agents
            if agent in observations
        }
        if not actions:
            return
        for agent in actions:
            watch.decides(agent)
        try:
            told = env.step(actions)
        except Exception as error:
            raise watch.untaken(actions, error) from error
        observations, infos = told[0], told[4]
        _check_told(told, acted=actions)
        watch.check_rewarded(told[1])
        yield


def _check_told(told: tuple[Any, ...], *, acted: Mapping[str, object]) -> None:
    """Who has acted must hear what came of it."""
    for name, values in zip(("rewards", "terminations", "truncations"), told[1:4], strict=True):
        missing = [agent for agent in acted if agent not in values]
        if missing:
            raise EnvironmentFault(
                f"step returned no {name} of agent {missing[0]!r}, who had acted; it has those of "
                f"{', '.join(map(repr, values)) or 'nobody'}"
            )
