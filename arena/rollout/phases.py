"""Spreads environments over the phases of an episode.

Environments that all begin at once, in a game with episodes of equal length, would stay in the same
phase for ever; each rollout would then show one part of the episode only. Therefore some of them
wait before they begin. If a rollout covers whole episodes, none needs to wait.

B environments.
"""

from __future__ import annotations

import torch

SPREAD_FROM = 2.0
"""Length of episodes, in rollouts, from which on they are spread."""

MAX_EXCESS = 4.0
"""Largest number of episodes that end in one step without a wait, relative to an even spread."""


class Phases:
    """Decides which environments wait. Owned by one collector.

    Args:
        num_envs: B.
        rollout_length: Calls of ``step`` in a rollout.
        device: Device of the environments.

    Attributes:
        waiting: Environments that are halted until their next episode begins; None: none.
            bool [B].
    """

    def __init__(self, *, num_envs: int, rollout_length: int, device: torch.device) -> None:
        self._num_envs = num_envs
        self._min_length = SPREAD_FROM * rollout_length
        self.waiting: torch.Tensor | None = None
        self._wait = torch.zeros(num_envs, dtype=torch.int64, device=device)

    def begin(self, length: float, *, generator: torch.Generator) -> torch.Tensor | None:
        """Spread environments that have just been reset.

        Args:
            length: Expected calls of ``step`` in an episode; 0: unknown.
            generator: Source of the waits.

        Returns:
            Environments that wait from now on, bool [B]; None: none.
        """
        everywhere = torch.ones_like(self._wait, dtype=torch.bool)
        return self._spread(everywhere, length=length, generator=generator)

    def end(
        self, over: torch.Tensor, *, length: float, generator: torch.Generator
    ) -> torch.Tensor | None:
        """Let environments wait if too many episodes ended in one step.

        Args:
            over: Environments whose episode ended. bool [B].
            length: Mean calls of ``step`` of these episodes.
            generator: Source of the waits.

        Returns:
            Environments that wait from now on, bool [B]; None: none.
        """
        num_over = int(over.sum())
        # An even spread ends B / L episodes in each step.
        if num_over < 2 or num_over <= MAX_EXCESS * self._num_envs / max(length, 1.0):
            return None
        return self._spread(over, length=length, generator=generator)

    def tick(self) -> torch.Tensor | None:
        """Count one call of ``step``; return the environments whose wait ends now. bool [B]."""
        if self.waiting is None:
            return None
        self._wait -= self.waiting.long()
        resumed = self.waiting & (self._wait <= 0)
        if not bool(resumed.any()):
            return None
        waiting = self.waiting & ~resumed
        self.waiting = waiting if bool(waiting.any()) else None
        return resumed

    def _spread(
        self, environments: torch.Tensor, *, length: float, generator: torch.Generator
    ) -> torch.Tensor | None:
        # An unknown length (0) is never spread.
        if length < self._min_length:
            return None
        index = environments.nonzero().squeeze(1)
        order = torch.randperm(len(index), generator=generator, device=index.device)
        # The first environment continues at once; the others wait k L / n, in random order.
        wait = (order * (length / len(index))).long()
        self._wait[index] = wait
        waiting = torch.zeros_like(environments)
        waiting[index] = wait > 0
        self.waiting = waiting if self.waiting is None else self.waiting | waiting
        return waiting
