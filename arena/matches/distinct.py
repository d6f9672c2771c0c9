"""Tells games apart by a hash of all decisions and returns.

Two games are the same where all decisions and the returns of all seats are. Chance that no agent
saw (a hidden card) does not count. With 64 bits, two of a million different games look the same
with a probability of 3e-8.

Shapes: B environments, S decisions of a population at once, N games that have ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import torch

from arena.envs.base import Turn

# Odd numbers of 64 bits with about half of the bits set; products wrap around.
_STEP, _FINAL, _COLUMN = -0x61C8864680B583EB, -0x3D4D51C2D82B14B1, 0x2545F4914F6CDD1D
_AGENT = 0x1F83D9ABFB41BD6B
_SHIFT = 29


class GameHashes:
    """Hashes of the games that B environments play. Owned by the loop that steps them.

    Args:
        num_envs: B.
        device: Device of turns and actions.
    """

    def __init__(self, *, num_envs: int, device: torch.device) -> None:
        self._hashes = torch.zeros(num_envs, dtype=torch.int64, device=device)

    def absorb(self, turn: Turn, actions: Mapping[str, torch.Tensor]) -> None:
        """Add the decisions that a turn asked for.

        Where no decision is asked for, the agent is -1 and the action 0, equally in each game.

        Args:
            turn: Turn that asked for them.
            actions: Actions by population. int64 [B, S] or float32 [B, S, K].
        """
        for population, group in turn.groups.items():
            chosen = actions[population]
            if chosen.dtype != torch.int64:
                # The bits of float32: a hash of rounded numbers would take different games for one.
                words = chosen.view(torch.int32).long().flatten(2)
                chosen = (words * _columns(words.shape[2], words.device)).sum(dim=2)
            # said = action + agent * odd   (all mod 2**64)
            said = torch.add(chosen, group.agent_index, alpha=_AGENT)
            if said.shape[1] == 1:
                said = said.squeeze(1)
            else:
                said = (said * _columns(said.shape[1], said.device)).sum(dim=1)
            # h <- h * odd + said + odd': the order of decisions counts
            self._hashes.mul_(_STEP).add_(said).add_(_COLUMN)

    def of(self, games: torch.Tensor) -> torch.Tensor:
        """Return hashes of the decisions so far, on the CPU. int64 [N].

        Args:
            games: Environments: indices int64 [N], or bool [B].
        """
        return self._hashes[games].cpu()

    def forget(self, environments: torch.Tensor) -> None:
        """Begin a new game in some environments. bool [B]."""
        self._hashes.masked_fill_(environments, 0)

    def forget_all(self) -> None:
        """Begin a new game in every environment."""
        self._hashes.zero_()


def combined(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Hash pairs of hashes. int64, of the shape of both."""
    return _mixed(one * _FINAL + other)


@dataclass(frozen=True, slots=True, kw_only=True)
class Games:
    """Games that have ended.

    Attributes:
        row: Row that each is counted under. int64 [N].
        decisions: Hashes of the decisions. int64 [N].
        returns: Returns of the Q seats. float64 [N, Q].
    """

    row: torch.Tensor
    decisions: torch.Tensor
    returns: torch.Tensor


def num_distinct(games: Sequence[Games], *, rows: int) -> list[int]:
    """Count different games, row by row; all on the CPU."""
    if not games:
        return [0] * rows
    row = torch.cat([some.row for some in games])
    decisions = torch.cat([some.decisions for some in games])
    # Adding 0 makes 0 of -0. Mixed first: signs alone would cancel out.
    words = _mixed((torch.cat([some.returns for some in games]) + 0.0).view(torch.int64))
    codes = combined(decisions, (words * _columns(words.shape[1], words.device)).sum(dim=1))
    # Pairs (row, code): equal games of different entrants are two games.
    different = torch.unique(torch.stack([row, codes], dim=1), dim=0)
    counts: list[int] = torch.bincount(different[:, 0], minlength=rows).tolist()
    return counts


def _mixed(values: torch.Tensor) -> torch.Tensor:
    """Mix the high bits into the low ones, and on."""
    values = (values ^ (values >> _SHIFT)) * _COLUMN
    return values ^ (values >> _SHIFT)


@cache
def _columns(number: int, device: torch.device) -> torch.Tensor:
    """Return different odd multipliers of columns. int64 [number]."""
    index = torch.arange(1, number + 1, dtype=torch.int64, device=device)
    # Odd, so that no bit of a product is lost mod 2**64.
    return (_mixed(index * _STEP) << 1) | 1
