"""Games that write down what they are told before their episodes, in `CALLS`.

Found by id, ``told:at_once`` and so on, with this directory as the launch directory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pettingzoo.utils import BaseWrapper
from pettingzoo.utils.conversions import aec_to_parallel
from reward_parts import PartsAtOnce, PartsInTurns  # type: ignore[import-not-found]

CALLS: list[tuple[object, ...]] = []
"""``("reset",)``, and ``("set_phase", phase, agent_steps, players)``, in the order of calls."""


class ToldAtOnce(PartsAtOnce):  # type: ignore[misc]
    def set_phase(self, phase: str, agent_steps: int | None, players: dict[str, str]) -> None:
        CALLS.append(("set_phase", phase, agent_steps, dict(players)))
        # User code must not be able to change the caller's dictionary.
        players.clear()

    def reset(self, seed: int | None = None, options: object = None) -> Any:
        CALLS.append(("reset",))
        return super().reset(seed, options)


class ToldInTurns(PartsInTurns):  # type: ignore[misc]
    def set_phase(self, phase: str, agent_steps: int | None, players: dict[str, str]) -> None:
        CALLS.append(("set_phase", phase, agent_steps, dict(players)))

    def reset(self, seed: int | None = None, options: object = None) -> None:
        CALLS.append(("reset",))
        super().reset(seed, options)


class Refuses(PartsAtOnce):  # type: ignore[misc]
    def set_phase(self, phase: str, agent_steps: int | None, players: dict[str, str]) -> None:
        raise ValueError(f"no {phase} here")


class Shown(PartsAtOnce):  # type: ignore[misc]
    """What it was told shows in its observations: how often, and the last agent steps."""

    _number, _agent_steps = 0, 0

    def set_phase(self, phase: str, agent_steps: int | None, players: dict[str, str]) -> None:
        self._number += 1
        self._agent_steps = (agent_steps or 0) + len(players["a"])

    def _seen(self) -> dict[str, Any]:
        return {
            agent: np.array([self._number, self._agent_steps], np.float32) for agent in self.agents
        }


def shown() -> Any:
    return Shown()


def at_once() -> Any:
    return ToldAtOnce()


def in_turns() -> Any:
    return BaseWrapper(ToldInTurns())


def converted() -> Any:
    return aec_to_parallel(BaseWrapper(ToldInTurns()))


def refuses() -> Any:
    return Refuses()
