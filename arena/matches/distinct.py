"""Tells games apart: a hash of who decided what, and of what all agents received in the end.

Two games are the same where all decisions and all returns are. What chance hid from everybody (a
card that nobody saw) does not count. With 64 bits, two of a million different games look the same
with a probability of 3e-8.

Shapes: B environments, A agents, S decisions of a population at once, N games that have ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from arena.envs.base import Turn

# Odd numbers of 64 bits with about half of the bits set; products wrap around.
_STEP, _FINAL, _COLUMN = -0x61C8864680B583EB, -0x3D4D51C2D82B14B1, 0x2545F4914F6CDD1D
SHIFT = 29


class GameHashes:
    """Hashes of the games that B environments play. Owned by who steps the environments.

    Args:
        num_envs: B.
        device: Where turns and actions are.
    """

    def __init__(self, *, num_envs: int, device: torch.device) -> None:
        self._hashes = torch.zeros(num_envs, dtype=torch.int64, device=device)

    def absorb(self, turn: Turn, actions: Mapping[str, torch.Tensor]) -> None:
        """Take in the decisions that a turn asked for.

        Args:
            turn: That asked.
            actions: What was answered, by population. int64 [B, S] or float32 [B, S, K].
        """
        for population, group in turn.groups.items():
            asked = group.agent_index >= 0
            chosen = actions[population]
            words = (chosen if chosen.dtype == torch.int64 else chosen.view(torch.int32)).long()
            said = torch.cat([group.agent_index[..., None], words.view(*asked.shape, -1)], dim=2)
            # Agents that decide at once are told apart by their indices, so their sum is enough.
            codes = _mixed((said * _columns(said.shape[2], said.device)).sum(dim=2) + _COLUMN)
            news = codes.masked_fill_(~asked, 0).sum(dim=1)
            hashes = _mixed(self._hashes * _STEP + news)
            self._hashes = torch.where(asked.any(dim=1), hashes, self._hashes)

    def of(self, games: torch.Tensor, *, returns: torch.Tensor) -> torch.Tensor:
        """Hash games that have ended.

        Args:
            games: Indices of their environments. int64 [N].
            returns: Of all agents in them. float64 [N, A].

        Returns:
            On the CPU. int64 [N].
        """
        # Adding 0 makes 0 of -0.
        words = _mixed((returns + 0.0).contiguous().view(torch.int64))
        paid = (words * _columns(words.shape[1], words.device)).sum(dim=1)
        return combined(self._hashes[games], paid).cpu()

    def forget(self, environments: torch.Tensor) -> None:
        """Begin a new game in some environments. bool [B]."""
        self._hashes.masked_fill_(environments, 0)

    def forget_all(self) -> None:
        """Begin a new game in every environment."""
        self._hashes.zero_()


def combined(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Hash pairs of hashes. int64, of the shape of both."""
    return _mixed(one * _FINAL + other)


def num_distinct(
    row: Sequence[torch.Tensor], code: Sequence[torch.Tensor], *, rows: int
) -> list[int]:
    """Count different games row by row.

    Args:
        row: Rows of games, in parts. int64 [N] each.
        code: Their hashes, in as many parts. int64 [N] each.
        rows: How many there are.
    """
    if not code:
        return [0] * rows
    games = torch.stack([torch.cat(list(row)), torch.cat(list(code))], dim=1)
    counts = torch.bincount(torch.unique(games, dim=0)[:, 0], minlength=rows)
    found: list[int] = counts.tolist()
    return found


def _mixed(values: torch.Tensor) -> torch.Tensor:
    """Spread what the high bits say over the low ones, and on."""
    values = (values ^ (values >> SHIFT)) * _COLUMN
    return values ^ (values >> SHIFT)


def _columns(number: int, device: torch.device) -> torch.Tensor:
    """Different odd multipliers of columns. int64 [number]."""
    index = torch.arange(1, number + 1, dtype=torch.int64, device=device)
    return (_mixed(index * _STEP) << 1) | 1
