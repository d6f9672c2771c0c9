"""Distinguishes games by a hash of all decisions and returns, and keeps their first decisions.

Two games are equal if all decisions and the returns of all seats are. Chance that no agent saw (a
hidden card) does not count. With 64 bits, two of a million different games have the same hash with
a probability of 3e-8.

Shapes: B environments, S decisions of a population at once, N games that have ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import torch

from arena.envs.base import Turn

# These are odd 64-bit numbers with about half of the bits set; products wrap around.
_STEP, _FINAL, _COLUMN = -0x61C8864680B583EB, -0x3D4D51C2D82B14B1, 0x2545F4914F6CDD1D
_AGENT = 0x1F83D9ABFB41BD6B
_SHIFT = 29

# A key has the turn's number in its upper bits and the action's index, below 2**31, in the lower
# ones.
_CODE_BITS = 32
_CODE = (1 << _CODE_BITS) - 1
_TURNS_AT_ONCE = 256
_NEVER = torch.iinfo(torch.int64).max

NO_DECISION = -1
"""First decision of a seat that made none or whose actions have no index."""


class GameHashes:
    """Hashes of the games that B environments play. Owned by the loop that steps them.

    Args:
        num_envs: B.
        device: Device of turns and actions.
        first: First decisions in these games; None: they are not kept.
    """

    def __init__(
        self, *, num_envs: int, device: torch.device, first: FirstDecisions | None = None
    ) -> None:
        self._hashes = torch.zeros(num_envs, dtype=torch.int64, device=device)
        self.first = first

    def absorb(self, turn: Turn, actions: Mapping[str, torch.Tensor]) -> None:
        """Add the decisions that a turn asked for.

        A slot without a decision has agent -1 and action 0 in every game.

        Args:
            turn: Turn that asked for them.
            actions: Actions by population. int64 [B, S] or float32 [B, S, K].
        """
        if self.first is not None:
            self.first.absorb(turn, actions)
        for population, group in turn.groups.items():
            chosen = actions[population]
            if chosen.dtype != torch.int64:
                # The bits of float32 are hashed, because rounding would give different games one
                # hash.
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
        if self.first is not None:
            self.first.forget(environments)

    def forget_all(self) -> None:
        """Begin a new game in every environment."""
        self._hashes.zero_()
        if self.first is not None:
            self.first.forget_all()


class FirstDecisions:
    """First decision of each agent in the games that B environments play.

    Turns are copied and read many at once later, so that a turn costs only a copy.

    Args:
        num_envs: B.
        num_agents: A.
        radices: Place values of choices in an action's index, by population; None: an action has
            no index (`arena.matches.openings.radices`).
        device: Device of turns and actions.
    """

    def __init__(
        self,
        *,
        num_envs: int,
        num_agents: int,
        radices: Mapping[str, tuple[int, ...] | None],
        device: torch.device,
    ) -> None:
        self._radices = {name: places for name, places in radices.items() if places is not None}
        # Game k of environment b has the number k B + b. The tensor is never changed in place,
        # because stored turns refer to it.
        self._games = torch.arange(num_envs, device=device)
        # Keys are by game and agent; the last column belongs to no agent.
        self._keys = torch.full((num_envs, num_agents + 1), _NEVER, device=device)
        self._turns: list[tuple[torch.Tensor, dict[str, tuple[torch.Tensor, torch.Tensor]]]] = []
        self._num_read = 0

    def absorb(self, turn: Turn, actions: Mapping[str, torch.Tensor]) -> None:
        """Add the decisions that a turn asked for; arguments as of `GameHashes.absorb`."""
        asked = {
            # The environment may overwrite a turn's tensors in its next step, so they are cloned.
            name: (turn.groups[name].agent_index.clone(), actions[name])
            for name in self._radices
            if name in turn.groups
        }
        self._turns.append((self._games, asked))
        if len(self._turns) == _TURNS_AT_ONCE:
            self._read()

    def games(self, environments: torch.Tensor) -> torch.Tensor:
        """Return the numbers of the games in some environments, for `of`. int64 [N].

        Args:
            environments: Indices int64 [N], or bool [B].
        """
        return self._games[environments]

    def of(self, games: torch.Tensor, *, seats: Sequence[Sequence[int]]) -> torch.Tensor:
        """Return the first decision of each seat, on the CPU; -1: none. int64 [N, Q].

        Args:
            games: Numbers of games. int64 [N].
            seats: Indices of each seat's agents.
        """
        self._read()
        keys = self._keys[games].cpu()
        first = torch.stack([keys[:, list(agents)].amin(dim=1) for agents in seats], dim=1)
        return (first & _CODE).masked_fill(first == _NEVER, NO_DECISION)

    def forget(self, environments: torch.Tensor) -> None:
        """Begin a new game in some environments. bool [B]."""
        self._games = torch.add(self._games, environments, alpha=len(self._games))

    def forget_all(self) -> None:
        """Begin a new game in every environment."""
        self._games = self._games + len(self._games)

    def _read(self) -> None:
        """Read the first decisions from the stored turns."""
        missing = int(self._games.max()) + 1 - len(self._keys)
        if missing > 0:
            # The number of rows doubles, so all copies together cost as much as the last one.
            more = torch.full_like(self._keys[:1], _NEVER).expand(max(missing, len(self._keys)), -1)
            self._keys = torch.cat([self._keys, more])
        num_columns, flat = self._keys.shape[1], self._keys.view(-1)
        for name, places in self._radices.items():
            kept = [
                (at, games, *asked[name])
                for at, (games, asked) in enumerate(self._turns, start=self._num_read)
                if name in asked
            ]
            if not kept:
                continue
            at, games, agents, actions = zip(*kept, strict=True)
            chosen = torch.stack(actions)
            if chosen.dtype != torch.int64:
                chosen = (chosen.long() * torch.tensor(places, device=chosen.device)).sum(dim=3)
            # One number has turn and action, so the smallest is the first decision. [T, B, S]
            when = torch.tensor(at, device=chosen.device) << _CODE_BITS
            key = chosen + when[:, None, None]
            # -1 modulo (A + 1) is A, the column that belongs to no agent.
            column = torch.stack(agents).remainder(num_columns)
            index = torch.stack(games)[:, :, None] * num_columns + column
            flat.scatter_reduce_(0, index.flatten(), key.flatten(), "amin")
        self._num_read += len(self._turns)
        self._turns.clear()


def combined(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Hash pairs of hashes. int64, of the shape of both."""
    return _mixed(one * _FINAL + other)


@dataclass(frozen=True, slots=True, kw_only=True)
class Games:
    """Games that have ended.

    Attributes:
        row: Row that counts each game. int64 [N].
        decisions: Hashes of the decisions. int64 [N].
        returns: Returns of the Q seats. float64 [N, Q].
    """

    row: torch.Tensor
    decisions: torch.Tensor
    returns: torch.Tensor


def num_distinct(games: Sequence[Games], *, rows: int) -> list[int]:
    """Count the different games of each row; tensors are on the CPU."""
    if not games:
        return [0] * rows
    row = torch.cat([some.row for some in games])
    decisions = torch.cat([some.decisions for some in games])
    # Adding 0 turns -0 into 0. Returns are mixed before summing, because games that differ only in
    # signs would cancel out.
    words = _mixed((torch.cat([some.returns for some in games]) + 0.0).view(torch.int64))
    codes = combined(decisions, (words * _columns(words.shape[1], words.device)).sum(dim=1))
    # The code includes the row, because equal games of different entrants are two games. It is one
    # number, because `unique` sorts numbers much faster than pairs.
    different, index = torch.unique(combined(row, codes), return_inverse=True)
    row_of = torch.empty_like(different).scatter_(0, index, row)
    counts: list[int] = torch.bincount(row_of, minlength=rows).tolist()
    return counts


def _mixed(values: torch.Tensor) -> torch.Tensor:
    """Mix the high bits of each number into its low ones."""
    values = (values ^ (values >> _SHIFT)) * _COLUMN
    return values ^ (values >> _SHIFT)


@cache
def _columns(number: int, device: torch.device) -> torch.Tensor:
    """Return different odd multipliers of columns. int64 [number]."""
    index = torch.arange(1, number + 1, dtype=torch.int64, device=device)
    # Odd multipliers lose no bit of a product mod 2**64.
    return (_mixed(index * _STEP) << 1) | 1
