"""Counting matches while environments run: returns, lengths and results per tuple of entrants.

B environments, A agents, Q seats, N finished episodes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from msgspec.structs import replace

from arena.envs.base import Turn
from arena.matches.distinct import GameHashes
from arena.matches.openings import added
from arena.matches.pair_scores import added_sums
from arena.matches.tally_sums import TallySums
from arena.types import Entrant, PairScore, Seat, Tally


class OpenEpisodes:
    """Sums over the episodes of B environments that have not ended.

    Attributes:
        returns: Undiscounted, of each agent. float64 [B, A].
        length: Calls of ``step``. int64 [B].
        void: Episodes that are no matches. bool [B].
    """

    def __init__(self, *, num_envs: int, num_agents: int, device: torch.device) -> None:
        self.returns = torch.zeros(num_envs, num_agents, dtype=torch.float64, device=device)
        self.length = torch.zeros(num_envs, dtype=torch.int64, device=device)
        self.void = torch.zeros(num_envs, dtype=torch.bool, device=device)


class TallyBook:
    """Sums of the episodes of B environments, updated turn by turn.

    Owned by the loop that steps the environments, which calls `record` after every step.

    Args:
        entrants: One entrant per seat, for each block. Blocks with equal entrants are merged.
        block_of_env: Block of each environment. int64 [B].
        agents: Names of the columns of ``Turn.reward``.
        sides: Names of the columns of ``Turn.score``.
        seats: Seats of the environment.
        open_episodes: Episodes that go on; None: all begin.
        games: Hashes of the games in these environments; None: games are not told apart.
    """

    def __init__(
        self,
        entrants: Sequence[tuple[Entrant, ...]],
        *,
        block_of_env: torch.Tensor,
        agents: tuple[str, ...],
        sides: Sequence[str],
        seats: tuple[Seat, ...],
        open_episodes: OpenEpisodes | None = None,
        games: GameHashes | None = None,
    ) -> None:
        device = block_of_env.device
        distinct = tuple(dict.fromkeys(entrants))
        row_of = {names: row for row, names in enumerate(distinct)}
        # Blocks of equal entrants share a row: they are one tally.
        self._row_of_block = torch.tensor([row_of[names] for names in entrants], device=device)
        self._row = self._row_of_block[block_of_env]
        self._mean_of_agents = mean_of_agents(seats, agents=agents)
        # Seats of one side share a column of `Turn.score`.
        self._side_of_seat = torch.tensor([list(sides).index(seat.side) for seat in seats])
        # In cooperation one play has no opponent: `match` compares two plays itself.
        compare = len(sides) > 1
        self._matches = TallySums(distinct, seats=seats, compare=compare)
        self._void_sums = TallySums(distinct, seats=seats, compare=compare)
        self._games = games
        self._first = None if games is None else games.first
        self._members = agents_of_seats(seats, agents=agents)
        # Numbers of the games that `_matches` has, in its order.
        self._numbers: list[torch.Tensor] = []
        self._open = open_episodes or OpenEpisodes(
            num_envs=len(block_of_env), num_agents=len(agents), device=device
        )

    def void(self, environments: torch.Tensor) -> None:
        """Let the current episodes of some environments be no matches. bool [B]."""
        self._open.void |= environments

    def move(self, block_of_env: torch.Tensor) -> None:
        """Let each environment's episodes count for its block (int64 [B]) from now on."""
        self._row = self._row_of_block[block_of_env]

    def record(self, turn: Turn, *, halted: torch.Tensor | None = None) -> None:
        """Take in what a step brought.

        Args:
            turn: Result of ``step``.
            halted: Environments that stood still in it. bool [B]. None: none.
        """
        episodes = self._open
        episodes.returns += turn.reward
        episodes.length += 1
        if halted is not None:
            # Length 0 says that no episode is open there (`Collector.in_flight`).
            episodes.length[halted] = 0
        if not bool(turn.episode_over.any()):
            return
        over = played_to_the_end(turn)
        # Void here: begun with a random opening, hence no match, but counted for statistics.
        self._add(turn, environments=over & ~episodes.void, sums=self._matches)
        if bool(episodes.void.any()):
            self._add(turn, environments=over & episodes.void, sums=self._void_sums)
        episodes.returns[turn.episode_over] = 0.0
        episodes.length[turn.episode_over] = 0
        # After both sums were taken: the flag belongs to the episode that ended.
        episodes.void &= ~turn.episode_over
        # After `_add`, which reads the hashes.
        if self._games is not None:
            self._games.forget(turn.episode_over)

    def _add(self, turn: Turn, *, environments: torch.Tensor, sums: TallySums) -> None:
        over = environments.nonzero().squeeze(1)
        if sums is self._matches and self._first is not None:
            self._numbers.append(self._first.games(over))
        sums.add(
            # float64 on the CPU: additions have the same order on every device.
            self._row[over].cpu(),
            # [N, A] @ [A, Q] -> [N, Q]
            seat_return=self._open.returns[over].cpu() @ self._mean_of_agents,
            seat_score=turn.score[over].cpu()[:, self._side_of_seat],
            length=self._open.length[over].cpu(),
            game=None if self._games is None else self._games.of(over),
        )

    def tallies(self) -> tuple[Tally, ...]:
        """Return the matches so far, one tally per distinct tuple of entrants."""
        first = None
        if self._first is not None and self._numbers:
            first = self._first.of(torch.cat(self._numbers), seats=self._members)
        return self._matches.tallies(first=first)

    def episodes(self) -> tuple[Tally, ...]:
        """Like `tallies`, with the episodes that are no matches; for statistics only."""
        return merge_tallies((*self._matches.tallies(), *self._void_sums.tallies()))


def played_to_the_end(turn: Turn) -> torch.Tensor:
    """Return environments whose episode is over and counts: it did not break. bool [B]."""
    return turn.episode_over if turn.void is None else turn.episode_over & ~turn.void


def agents_of_seats(seats: Sequence[Seat], *, agents: tuple[str, ...]) -> list[list[int]]:
    """Return the indices of each seat's agents."""
    return [[agents.index(agent) for agent in seat.agents] for seat in seats]


def mean_of_agents(seats: tuple[Seat, ...], *, agents: tuple[str, ...]) -> torch.Tensor:
    """Return the matrix from returns per agent to mean returns per seat. float64 [A, Q]."""
    matrix = torch.zeros(len(agents), len(seats), dtype=torch.float64)
    for column, seat in enumerate(seats):
        for agent in seat.agents:
            matrix[agents.index(agent), column] = 1.0 / len(seat.agents)
    return matrix


def merge_tallies(tallies: Sequence[Tally]) -> tuple[Tally, ...]:
    """Add up tallies of the same entrants; the order of first appearance stays.

    Games of two tallies count as different ones.
    """
    merged: dict[tuple[Entrant, ...], Tally] = {}
    for tally in tallies:
        known = merged.get(tally.entrants)
        # dicts keep the order of insertion.
        merged[tally.entrants] = tally if known is None else _sum(known, tally)
    return tuple(merged.values())


def _sum(one: Tally, other: Tally) -> Tally:
    return replace(
        one,
        matches=one.matches + other.matches,
        pairs=tuple(map(_sum_of_pairs, one.pairs, other.pairs)),
        return_sum=tuple(map(sum, zip(one.return_sum, other.return_sum, strict=True))),
        return_sum_of_squares=tuple(
            map(sum, zip(one.return_sum_of_squares, other.return_sum_of_squares, strict=True))
        ),
        length_sum=one.length_sum + other.length_sum,
        distinct=(
            None
            if one.distinct is None or other.distinct is None
            else one.distinct + other.distinct
        ),
        openings=added(one, other),
    )


def _sum_of_pairs(one: PairScore, other: PairScore) -> PairScore:
    score_sum, square_sum = added_sums(one, other)
    return replace(
        one,
        wins=one.wins + other.wins,
        draws=one.draws + other.draws,
        losses=one.losses + other.losses,
        score_sum=score_sum,
        square_sum=square_sum,
    )
