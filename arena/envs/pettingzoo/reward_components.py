"""Named components of rewards that an environment reports, for policies with their own weights.

An environment may put a mapping from names to numbers into ``infos[agent]["reward_components"]`` at
each step. ``environment.reward_weights`` and PBT decide which of them count, and how much. Reported
returns, and so every outcome, remain the environment's own reward.

Source: the internal rewards of Jaderberg et al., "Human-level performance in 3D multiplayer games
with population-based reinforcement learning" (Science, 2019). Shapes: A agents, R components.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from arena.envs.spaces.observations import is_bounded, reward_rule
from arena.errors import EnvironmentFault

KEY = "reward_components"
"""Key in an agent's info."""


class ComponentRow:
    """Components that the agents of one environment of the batch received.

    Args:
        names: The R configured components; others are ignored.
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
        # The sets persist over episodes until an agent has reported every name once.
        self._missing = {agent: set(names) for agent in agents}
        self._others: dict[str, set[str]] = {agent: set() for agent in agents}
        self._counted: dict[str, tuple[object, object, dict[object, object]]] = {}

    def begin_turns(self, infos: Mapping[str, Any]) -> None:
        """Begin a turn-based episode; infos that are present now belong to no step."""
        self._counted = {}
        self._new(infos)

    def credit_turn(self, infos: Mapping[str, Any]) -> None:
        """Add the components that agents report after a step of a turn-based environment.

        A mapping counts once: the same object after a further step belongs to the earlier one.
        """
        for agent, reported in self._new(infos):
            self.credit(agent, reported)

    def credit_all(self, infos: Mapping[str, Any]) -> None:
        """Add the components that agents report after a parallel step, which returns new infos."""
        for agent, info in infos.items():
            reported = info.get(KEY) if info else None
            if reported is not None:
                self.credit(agent, reported)

    def credit(self, agent: str, reported: object) -> None:
        """Add the components of an agent; unknown agents are ignored.

        Raises:
            EnvironmentFault: If it is no mapping, or a configured component is no finite number.
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
            # Names are compared only until all were seen, because this runs at every step of every
            # agent.
            missing.difference_update(reported)
            self._others[agent].update(str(name) for name in reported)
        for index, name in enumerate(self._names):
            value = reported.get(name, 0.0)
            if not is_bounded(value):
                raise EnvironmentFault(
                    f"agent {agent!r}: the reward component {name!r} must be "
                    f"{reward_rule(value)}, got {value!r}"
                )
            self._received[column, index] += value

    def check(self, agents: Iterable[str]) -> None:
        """Check at an episode's end that each agent has reported each component at least once so
        far.

        Args:
            agents: Agents that decided in the episode.

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

    def _new(self, infos: Mapping[str, Any]) -> list[tuple[str, object]]:
        """Return the agents with uncounted components, and these components."""
        new: list[tuple[str, object]] = []
        for agent, info in infos.items():
            reported = info.get(KEY) if info else None
            if reported is None:
                continue
            counted = self._counted.get(agent)
            values = dict(reported) if isinstance(reported, Mapping) else {}
            # PettingZoo clears an agent's rewards but never its info. Comparing identity is safe:
            # the old objects are kept here, so no new object can have their address.
            if counted is not None and counted[0] is info and counted[1] is reported:
                # Values are compared with a copy, because the kept object would have changed as
                # well.
                if counted[2] != values:
                    raise EnvironmentFault(
                        f"agent {agent!r}: {KEY} must be a new mapping at each step, got one that "
                        f"was {counted[2]} and was changed in place to {values}"
                    )
                continue
            self._counted[agent] = (info, reported, values)
            new.append((agent, reported))
        return new
