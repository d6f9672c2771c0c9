"""Stakes of random play: whether returns tell more than the winner, and how much more.

Tests: `tests/arena/envs/probe/test_play.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

ROUNDING = 1e-6
"""Tolerance of equal returns, which are sums of float32 rewards."""


class Stakes:
    """Rewards of one environment. Torch-free; owned by the player.

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
            # A fault such as an unknown agent is not the matter of this measurement.
            self._returns[agent] = self._returns.get(agent, 0.0) + float(reward)

    def end_episode(self) -> None:
        """Count the returns of the episode, and begin the next one."""
        returns = list(self._returns.values())
        # m = (max_i G_i - min_i G_i) / 2, the largest of all episodes
        self.largest_margin = max(self.largest_margin, (max(returns) - min(returns)) / 2.0)
        self.is_plain = self.is_plain and all(
            # |G| is 0 or 1 but for rounding.
            min(abs(abs(value) - size) for size in (0.0, 1.0)) <= ROUNDING
            for value in returns
        )
        self._returns = dict.fromkeys(self._returns, 0.0)
