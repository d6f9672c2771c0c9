"""Tallies of matches while environments run: returns, lengths and results per tuple of entrants.

B environments, A agents, Q seats, N finished episodes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from msgspec.structs import replace

from arena.envs.base import Turn
from arena.matches.openings import added
from arena.matches.pair_scores import added_sums
from arena.matches.tally_sums import TallySums
from arena.types import Entrant, PairScore, Seat, Tally


class OpenEpisodes:
    """Sums over the episodes of B environments that have not ended.

    Attributes:
        returns: Undiscounted, of each agent. float64 [B, A].
        length: Calls of ``step``. int64 [B].
        void: Episodes that are no matches but count for statistics, because they began with a
            random opening. bool [B].
    """

    def __init__(self, *, num_envs: int, num_agents: int, device: torch.device) -> None:
        self.returns = torch.zeros(num_envs, num_agents, dtype=torch.float64, device=device)
        self.length = torch.zeros(num_envs, dtype=torch.int64, device=device)
        self.void = torch.zeros(num_envs, dtype=torch.bool, device=device)

    def add(self, turn: Turn) -> None:
        """Add a step's results; `forget` then begins the next episodes."""
        self.returns += turn.reward
        self.length += 1

    def ended(
        self, turn: Turn, environments: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the episodes that ended with a turn in some environments (bool [B]).

        Returns:
            All on the CPU, where additions have one order: environments int64 [N]; undiscounted
            return of each agent, float64 [N, A]; points of each side, as in ``Turn.score``, float32
            [N, sides]; calls of ``step``, int64 [N].
        """
        over = environments.nonzero().squeeze(1)
        score, length = turn.score[over].cpu(), self.length[over].cpu()
        return over.cpu(), self.returns[over].cpu(), score, length

    def forget(self, environments: torch.Tensor) -> None:
        """Begin a new episode in some environments. bool [B]."""
        self.returns[environments] = 0.0
        self.length[environments] = 0
        self.void &= ~environments


class TallyBook:
    """Sums of the episodes of B environments, updated turn by turn.

    Owned by the loop that steps the environments (`arena.matches.play`).

    Args:
        entrants: One entrant per seat, for each block. Blocks with equal entrants are merged.
        block_of_env: Block of each environment. int64 [B].
        agents: Names of the columns of ``Turn.reward``.
        sides: Names of the columns of ``Turn.score``.
        seats: Seats of the environment.
    """

    def __init__(
        self,
        entrants: Sequence[tuple[Entrant, ...]],
        *,
        block_of_env: torch.Tensor,
        agents: tuple[str, ...],
        sides: Sequence[str],
        seats: tuple[Seat, ...],
    ) -> None:
        self._mean_of_agents = mean_of_agents(seats, agents=agents)
        # Seats of one side share a column of `Turn.score`.
        self._side_of_seat = torch.tensor([list(sides).index(seat.side) for seat in seats])
        # In cooperation one play has no opponent: `match` compares two plays itself.
        compare = len(sides) > 1
        self._matches = TallySums(entrants, seats=seats, compare=compare)
        self._void_sums = TallySums(entrants, seats=seats, compare=compare)
        self.move(block_of_env)

    def move(self, block_of_env: torch.Tensor) -> None:
        """Let each environment's episodes count for its block (int64 [B]) from now on."""
        self._row = self._matches.rows[block_of_env.cpu()]

    def add(self, turn: Turn, episodes: OpenEpisodes) -> None:
        """Add the episodes that ended with a turn; add void ones only to `episodes`."""

        def add(environments: torch.Tensor, sums: TallySums) -> None:
            environment, returns, score, length = episodes.ended(turn, environments)
            sums.add(
                self._row[environment],
                # [N, A] @ [A, Q] -> [N, Q]
                seat_return=returns @ self._mean_of_agents,
                seat_score=score[:, self._side_of_seat],
                length=length,
            )

        over = played_to_the_end(turn)
        add(over & ~episodes.void, self._matches)
        if bool(episodes.void.any()):
            add(over & episodes.void, self._void_sums)

    def tallies(self) -> tuple[Tally, ...]:
        """Return the matches so far, one tally per distinct tuple of entrants."""
        return self._matches.tallies()

    def episodes(self) -> tuple[Tally, ...]:
        """Return tallies of all episodes, also those that are no matches; for statistics only."""
        return merge_tallies((*self._matches.tallies(), *self._void_sums.tallies()))


def played_to_the_end(turn: Turn) -> torch.Tensor:
    """Return environments whose episode ended without breaking, so that it counts. bool [B]."""
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
    """Add up tallies of the same entrants, in the order of first appearance.

    Games of two tallies count as different games.
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
