"""Named parts of rewards that an environment reports, for policies that weigh them themselves.

An environment may put a mapping from names to numbers into ``infos[agent]["reward_components"]`` at
each step. Which of them count, and how much, is ``environment.reward_weights`` and PBT's business;
what an agent is told to have earned, and so every outcome, stays the environment's own reward.

Source: the internal rewards of Jaderberg et al., "Human-level performance in 3D multiplayer games
with population-based reinforcement learning" (Science, 2019). Shapes: A agents, R components.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from arena.envs.spaces.observations import is_finite
from arena.errors import EnvironmentFault

KEY = "reward_components"
"""In an agent's info."""


class ComponentRow:
    """What the agents of one environment of the batch received of each component.

    Args:
        names: The R components that count; what else is reported weighs nothing.
        agents: The A agents.
        received: Part of the batch's components, cleared with them. float32 [A, R].
    """

    def __init__(
        self,
        names: tuple[str, ...],
        *,
        agents: tuple[str, ...],
        received: npt.NDArray[np.float32],
    ) -> None:
        self._names = names
        self._columns = {agent: column for column, agent in enumerate(agents)}
        self._received = received
        self._missing = {agent: set(names) for agent in agents}
        self._others: dict[str, set[str]] = {agent: set() for agent in agents}

    def credit(self, agent: str, reported: object) -> None:
        """Add what an agent received; who is no possible agent is ignored.

        Raises:
            EnvironmentFault: If it is no mapping, or a component that counts is no finite number.
        """
        column = self._columns.get(agent)
        if column is None:
            return
        if not isinstance(reported, Mapping):
            raise EnvironmentFault(
                f"agent {agent!r}: {KEY} must be a mapping from names to numbers, got {reported!r}"
            )
        missing = self._missing[agent]
        if missing:
            missing.difference_update(reported)
            self._others[agent].update(str(name) for name in reported)
        for index, name in enumerate(self._names):
            value = reported.get(name, 0.0)
            if not is_finite(value):
                raise EnvironmentFault(
                    f"agent {agent!r}: the reward component {name!r} must be finite in float32, "
                    f"got {value!r}"
                )
            self._received[column, index] += value

    def check(self, agents: Iterable[str]) -> None:
        """At an episode's end: everybody must have reported each component once so far.

        Args:
            agents: Who decided in the episode.

        Raises:
            EnvironmentFault: Names the first agent and component that are missing.
        """
        for agent in agents:
            for name in self._names:
                if name in self._missing[agent]:
                    others = ", ".join(sorted(self._others[agent])) or "none"
                    raise EnvironmentFault(
                        f"agent {agent!r} never reported the reward component {name!r} in an "
                        f"episode, which environment.reward_weights weighs: infos[{agent!r}]"
                        f"[{KEY!r}] must have it, 0.0 where there is none; it had: {others}"
                    )


class ReportingTurns:
    """An AEC environment whose steps credit the components that they brought.

    An agent's info stays where it is until the environment replaces it, as its rewards do, but
    unlike them PettingZoo never clears it. So a mapping counts once: what is still the same object
    after a step is of an earlier one.

    Args:
        env: A ``pettingzoo.AECEnv``.
        state: What to read its ``infos`` and so on from.
        components: Are credited.
    """

    def __init__(self, env: Any, *, state: Any, components: ComponentRow) -> None:  # noqa: ANN401
        self._env = env
        self._state = state
        self._components = components
        self._counted: dict[str, tuple[object, object, dict[object, object]]] = {}

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        """Everything else is the environment's own."""
        return getattr(self._state, name)

    def reset(self, seed: int) -> None:
        """Start an episode; nothing that infos show now is of a step."""
        self._env.reset(seed=seed)
        self._counted = {}
        self._new()

    def step(self, action: int | None) -> None:
        """Carry out one action."""
        self._env.step(action)
        for agent, reported in self._new():
            self._components.credit(agent, reported)

    def observe(self, agent: str) -> Any:  # noqa: ANN401
        """What an agent sees."""
        return self._env.observe(agent)

    def close(self) -> None:
        """Release what the environment holds."""
        self._env.close()

    def _new(self) -> list[tuple[str, object]]:
        """Who has components that are not counted yet, and which."""
        new: list[tuple[str, object]] = []
        for agent, info in self._state.infos.items():
            reported = info.get(KEY) if info else None
            if reported is None:
                continue
            counted = self._counted.get(agent)
            values = dict(reported) if isinstance(reported, Mapping) else {}
            if counted is not None and counted[0] is info and counted[1] is reported:
                if counted[2] != values:
                    raise EnvironmentFault(
                        f"agent {agent!r}: {KEY} must be a new mapping at each step, got one that "
                        f"was {counted[2]} and was changed in place to {values}"
                    )
                continue
            self._counted[agent] = (info, reported, values)
            new.append((agent, reported))
        return new


class ReportingAtOnce:
    """A Parallel environment whose steps credit the components that they brought.

    Args:
        env: A ``pettingzoo.ParallelEnv``.
        components: Are credited.
    """

    def __init__(self, env: Any, *, components: ComponentRow) -> None:  # noqa: ANN401
        self._env = env
        self._components = components

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        """Everything else is the environment's own."""
        return getattr(self._env, name)

    def step(self, actions: Mapping[str, int]) -> Any:  # noqa: ANN401
        """Carry out one action of each agent."""
        answer = self._env.step(actions)
        for agent, info in answer[4].items():
            reported = info.get(KEY) if info else None
            if reported is not None:
                self._components.credit(agent, reported)
        return answer
