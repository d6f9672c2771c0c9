"""Length, speed, memory and stakes of an environment, which determine the sizes of a run.

Tests: `tests/arena/envs/probe/test_play.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ROUNDING = 1e-6
"""Tolerance of equal returns, which are sums of float32 rewards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Measurements of random play of one environment.

    A step is what a batch steps: one decision where agents take turns, one of each agent where they
    decide at once.

    Attributes:
        episode_length: Mean length of an episode in steps.
        is_lower_bound: Whether no episode ended; the length is then that of the whole play.
        step_s: Seconds of a step, resets included.
        env_bytes: Memory of one environment; 0: too little to be measured.
        is_batched: Whether a batched game takes the environment's place in training.
        machine_bytes: Memory of the machine, or a process's limit of it.
        largest_margin: Half of the game's range of utilities where declared, else half of the
            largest difference between the returns of two agents in an episode; 0: none was seen.
        is_margin_known: Whether the game declares its range of utilities.
        has_stakes: Whether an agent's return was anything but -1, 0 or 1.
        reason: Reason for the run sizes chosen from this pace, in words; empty: none is chosen yet.
    """

    episode_length: float
    is_lower_bound: bool
    step_s: float
    env_bytes: int
    is_batched: bool
    machine_bytes: int
    largest_margin: float = 0.0
    is_margin_known: bool = False
    has_stakes: bool = False
    reason: str = ""


class Stakes:
    """Rewards of one environment. Torch-free; owned by the loop that plays.

    Attributes:
        largest_margin: Half of the largest difference between the returns of two agents in an
            episode; 0 before one has ended.
        is_plain: Whether all returns so far were -1, 0 or 1.
    """

    def __init__(self, agents: Sequence[str]) -> None:
        self._returns = dict.fromkeys(agents, 0.0)
        self.largest_margin = 0.0
        self.is_plain = True

    def credit(self, rewards: Mapping[str, float]) -> None:
        """Add rewards of agents."""
        for agent, reward in rewards.items():
            # Faults such as an unknown agent are not checked in this measurement.
            self._returns[agent] = self._returns.get(agent, 0.0) + float(reward)

    def end_episode(self) -> None:
        """Count the returns of the episode, and begin the next one."""
        returns = list(self._returns.values())
        # m = (max_i G_i - min_i G_i) / 2, and the largest m of all episodes is kept.
        self.largest_margin = max(self.largest_margin, (max(returns) - min(returns)) / 2.0)
        self.is_plain = self.is_plain and all(
            # The size |G| is 0 or 1 up to rounding.
            min(abs(abs(value) - size) for size in (0.0, 1.0)) <= ROUNDING
            for value in returns
        )
        self._returns = dict.fromkeys(self._returns, 0.0)
