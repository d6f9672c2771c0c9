"""Environments whose episodes are longer than what a learner plays in one assignment.

Found by id: ``long_episodes:paid_at_the_end`` with this directory as the launch directory. Two
agents act at once, each sees how far the episode is, and has two actions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from pettingzoo import ParallelEnv

AGENTS = ("a", "b")
LAST_STEPS = 50

Scores = Callable[[int, int, Mapping[str, int]], dict[str, float]]
"""Rewards of a step: its number, the episode's length and the actions, 0 or 1."""


class LongEpisodes(ParallelEnv):  # type: ignore[misc]
    """Plays so many steps, drawn from a range in each episode.

    Args:
        shortest: Steps of the shortest episode.
        longest: Steps of the longest one.
        pay: Rewards of a step.
        step_s: Seconds that a step takes at least.
        kilobytes: Memory that an object takes.
    """

    metadata = {"name": "long_episodes_v0", "render_modes": []}  # noqa: RUF012
    render_mode = None

    def __init__(
        self,
        *,
        shortest: int,
        longest: int,
        pay: Callable[[], Scores],
        step_s: float = 0.0,
        kilobytes: int = 0,
    ) -> None:
        self.possible_agents: list[Any] = list(AGENTS)
        self._range = shortest, longest
        self._make_pay = pay
        self._step_s = step_s
        # Random bytes: pages that were never written take no memory.
        self._ballast = np.random.default_rng(0).bytes(1024 * kilobytes)
        self._observation_space = spaces.Box(0.0, 1.0, (3,), np.float32)
        self._action_space = spaces.Discrete(2)

    def observation_space(self, agent: str) -> Any:
        return self._observation_space

    def action_space(self, agent: str) -> Any:
        return self._action_space

    def reset(
        self, seed: int | None = None, options: object = None
    ) -> tuple[dict[str, npt.NDArray[np.float32]], dict[str, dict[str, object]]]:
        self.agents = list(AGENTS)
        shortest, longest = self._range
        self.length = int(np.random.default_rng(seed).integers(shortest, longest + 1))
        self.time = 0
        self._pay = self._make_pay()
        return self._observe(), {agent: {} for agent in AGENTS}

    def step(self, actions: Mapping[str, int]) -> tuple[dict[str, Any], ...]:
        until = time.perf_counter() + self._step_s
        while time.perf_counter() < until:
            pass
        reward = self._pay(self.time, self.length, actions)
        self.time += 1
        over = self.time >= self.length
        ended = dict.fromkeys(AGENTS, over)
        observations = self._observe()
        if over:
            self.agents = []
        return observations, reward, ended, dict.fromkeys(AGENTS, False), {a: {} for a in AGENTS}

    def close(self) -> None:
        pass

    def _observe(self) -> dict[str, npt.NDArray[np.float32]]:
        done = self.time / self.length
        is_last = float(self.time >= self.length - LAST_STEPS)
        seen = np.array([done, float(done >= 0.5), is_last], dtype=np.float32)
        return dict.fromkeys(AGENTS, seen)


def at_the_end() -> Scores:
    """Pay 1 at the end to the agent that played 1 more often in the last steps, -1 to the other."""
    counts = dict.fromkeys(AGENTS, 0)

    def pay(step: int, length: int, actions: Mapping[str, int]) -> dict[str, float]:
        if step >= length - LAST_STEPS:
            for agent in AGENTS:
                counts[agent] += int(actions[agent])
        if step + 1 < length:
            return dict.fromkeys(AGENTS, 0.0)
        lead = float(np.sign(counts["a"] - counts["b"]))
        return {"a": lead, "b": -lead}

    return pay


def by_halves() -> Scores:
    """Pay 1 for action 0 in the first half of the episode and for action 1 in the second."""

    def pay(step: int, length: int, actions: Mapping[str, int]) -> dict[str, float]:
        right = int(2 * step >= length)
        return {agent: float(actions[agent] == right) for agent in AGENTS}

    return pay


def paid_at_the_end(**settings: Any) -> LongEpisodes:
    """Make the one that pays at its end; 1,000 steps."""
    return LongEpisodes(**{"shortest": 1000, "longest": 1000, "pay": at_the_end, **settings})


def two_halves(**settings: Any) -> LongEpisodes:
    """Make the one of which the second half wants the other action; 1,000 steps."""
    return LongEpisodes(**{"shortest": 1000, "longest": 1000, "pay": by_halves, **settings})


def of_any_length(**settings: Any) -> LongEpisodes:
    """Make the one whose episodes take 100 to 3,000 steps, and pay at their end."""
    return LongEpisodes(**{"shortest": 100, "longest": 3000, "pay": at_the_end, **settings})
