"""Counting matches while environments run: returns, lengths and results per tuple of entrants.

B environments, A agents, Q seats, N finished episodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from arena.envs.base import Turn
from arena.envs.batched.scoring import score_against
from arena.matches.distinct import NO_DECISION, GameHashes, Games, num_distinct
from arena.matches.openings import MAX_ACTIONS, MAX_CODES, NOT_COUNTED, added, most_played
from arena.matches.pair_scores import added_sums, kept_sums
from arena.matches.seating import rival_seats
from arena.types import Entrant, PairScore, Seat, SeatOpenings, Tally


class TallySums:
    """Sums of results, one row per distinct tuple of entrants.

    They are kept on the CPU, where adding floats has one order and so one result.

    Args:
        entrants: Distinct tuples, one entrant per seat.
        seats: The environment's seats.
        compare: Whether seats are compared in pairs.
    """

    def __init__(
        self,
        entrants: Sequence[tuple[Entrant, ...]],
        *,
        seats: tuple[Seat, ...],
        compare: bool,
    ) -> None:
        self._entrants = tuple(entrants)
        self._pairs = rival_seats(seats) if compare else ()
        rows, num_seats = len(self._entrants), len(seats)
        self._matches = torch.zeros(rows, dtype=torch.int64)
        self._length = torch.zeros(rows, dtype=torch.int64)
        self._returns = torch.zeros(rows, num_seats, dtype=torch.float64)
        self._squares = torch.zeros(rows, num_seats, dtype=torch.float64)
        # Columns: wins, draws, losses of the pair's first seat.
        self._results = torch.zeros(rows, len(self._pairs), 3, dtype=torch.int64)
        # Columns: its scores and their squares.
        self._scores = torch.zeros(rows, len(self._pairs), 2, dtype=torch.float64)
        self._games: list[Games] = []
        # Row and points of the seats' sides, call by call.
        self._added: list[tuple[torch.Tensor, torch.Tensor]] = []

    def add(
        self,
        row: torch.Tensor,
        *,
        seat_return: torch.Tensor,
        seat_score: torch.Tensor,
        length: torch.Tensor,
        game: torch.Tensor | None = None,
    ) -> None:
        """Add N matches. The tensors are on the CPU.

        Args:
            row: Index of each match's tuple of entrants. int64 [N].
            seat_return: Mean undiscounted return of the seat's agents. float64 [N, Q].
            seat_score: Points of the seat's side, as in ``Turn.score``. [N, Q].
            length: Calls of ``step``. int64 [N].
            game: Hashes of what was decided, in every call or in none. int64 [N].
        """
        if game is not None:
            self._games.append(Games(row=row, decisions=game, returns=seat_return))
        self._matches.index_add_(0, row, torch.ones_like(row))
        self._length.index_add_(0, row, length)
        # index_add_ adds repeated rows, where indexing with += would keep one of them.
        self._returns.index_add_(0, row, seat_return)
        self._squares.index_add_(0, row, seat_return.square())
        self._added.append((row, seat_score))
        for column, (first, second) in enumerate(self._pairs):
            score = score_against(seat_score[:, first], seat_score[:, second])
            # With 1/2 exactly for equal points, a draw is no matter of rounding.
            result = torch.stack((score > 0.5, score == 0.5, score < 0.5), dim=1)
            self._results[:, column].index_add_(0, row, result.long())
            both = torch.stack((score, score.square()), dim=1)
            self._scores[:, column].index_add_(0, row, both)

    def tallies(self, *, first: torch.Tensor | None = None) -> tuple[Tally, ...]:
        """One per tuple of entrants that played; those without a match are left out.

        Args:
            first: First decision of each seat in all matches, in their order. int64 [.., Q]. None:
                not counted.
        """
        matches, lengths = self._matches.tolist(), self._length.tolist()
        returns, squares = self._returns.tolist(), self._squares.tolist()
        results, scores = self._results.tolist(), self._scores.tolist()
        distinct = num_distinct(self._games, rows=len(matches))
        openings = self._openings(first)
        return tuple(
            Tally(
                entrants=entrants,
                matches=matches[row],
                pairs=tuple(map(_pair_score, self._pairs, results[row], scores[row])),
                return_sum=tuple(returns[row]),
                return_sum_of_squares=tuple(squares[row]),
                length_sum=lengths[row],
                distinct=distinct[row] if self._games else None,
                openings=openings[row],
            )
            for row, entrants in enumerate(self._entrants)
            if matches[row]
        )

    def _openings(self, first: torch.Tensor | None) -> list[tuple[SeatOpenings, ...]]:
        """Count first decisions, row by row; a row without one has none."""
        if first is None or not self._added:
            return [()] * len(self._entrants)
        row, score = (torch.cat(parts) for parts in zip(*self._added, strict=True))
        points = torch.zeros(first.shape, dtype=torch.float64)
        for one, other in self._pairs:
            won = score_against(score[:, one], score[:, other])
            points[:, one] += won
            points[:, other] += 1.0 - won
        # A seat's points in a match are the mean over its rivals.
        rivals = [sum(seat in pair for pair in self._pairs) for seat in range(first.shape[1])]
        points /= torch.tensor(rivals).clamp(min=1)
        counted = first != NO_DECISION
        seats = [
            _openings_of_seat(row[own], first[own, seat], points[own, seat])
            for seat, own in enumerate(counted.unbind(dim=1))
        ]
        by_row = [
            tuple(seat.get(at, NOT_COUNTED) for seat in seats) for at in range(len(self._entrants))
        ]
        return [() if set(found) == {NOT_COUNTED} else found for found in by_row]


def _openings_of_seat(
    row: torch.Tensor, action: torch.Tensor, points: torch.Tensor
) -> dict[int, SeatOpenings]:
    """Return a seat's openings by row, from those of N matches."""
    # One number of both, for unique rows would be sorted number by number.
    different, index, counts = torch.unique(
        row * MAX_CODES + action, return_inverse=True, return_counts=True
    )
    # On the CPU index_add_ adds in the order of the matches.
    won = torch.zeros(len(different), dtype=torch.float64).index_add_(0, index, points)
    found: dict[int, list[tuple[int, int, float]]] = {}
    for key, count, total in zip(different.tolist(), counts.tolist(), won.tolist(), strict=True):
        at, code = divmod(key, MAX_CODES)
        found.setdefault(at, []).append((code, count, total))
    return {at: most_played(lines, most=MAX_ACTIONS) for at, lines in found.items()}


def _pair_score(
    seats: tuple[int, int], results: Sequence[int], scores: Sequence[float]
) -> PairScore:
    wins, draws, losses = results
    pair = PairScore(first=seats[0], second=seats[1], wins=wins, draws=draws, losses=losses)
    score_sum, square_sum = kept_sums(pair, score_sum=scores[0], square_sum=scores[1])
    return replace(pair, score_sum=score_sum, square_sum=square_sum)


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
