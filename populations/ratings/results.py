"""Results in the form that rating models use: merged, checked, and stored in columns.

Shapes: M results.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple

import numpy as np
import numpy.typing as npt

from arena.matches.pair_scores import Scored, kept_sums, points, squares
from arena.types import Entrant
from populations.ratings.model import E, Result

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

Rated = tuple[str, Entrant]
"""Population and entrant; a bot is a different player in each population."""

POINTS = np.array([1.0, 0.5, 0.0])
"""Scores of a win, a draw and a loss."""

ROUNDING = 1e-9
"""Difference per match below which two sums of scores are equal."""


class Counts(NamedTuple):
    """Results of a pair in its seats, from the view of the first player.

    Attributes:
        wins: Number of matches won.
        draws: Number of matches drawn.
        losses: Number of matches lost.
        points: Sum of scores.
        squares: Sum of the squares of scores.
    """

    wins: float
    draws: float
    losses: float
    points: float
    squares: float

    @classmethod
    def from_results(cls, results: Scored, *, weight: float = 1.0) -> Counts:
        """Return the counts of results, each of which counts as ``weight`` matches."""
        wins, draws, losses = (
            weight * results.wins,
            weight * results.draws,
            weight * results.losses,
        )
        # Sums that follow from the counts are computed from them, so that they agree to the bit.
        follow = results.score_sum is None
        return cls(
            wins,
            draws,
            losses,
            points=wins + 0.5 * draws if follow else weight * points(results),
            squares=wins + 0.25 * draws if follow else weight * squares(results),
        )

    @property
    def matches(self) -> float:
        """Number of matches, weights included."""
        return self.wins + self.draws + self.losses

    def turned(self) -> Counts:
        """Return the same results from the view of the second player."""
        # sum (1 - s)^2 = n - 2 sum s + sum s^2
        squares = self.matches - 2.0 * self.points + self.squares
        return Counts(self.losses, self.draws, self.wins, self.lost_points, squares)

    @property
    def lost_points(self) -> float:
        """Sum of the second player's scores."""
        return self.matches - self.points


def _result(first: E, second: E, seats: tuple[int, int], *, counts: Counts) -> Result[E]:
    wins, draws, losses, won, square = counts
    result = Result(first=first, second=second, seats=seats, wins=wins, draws=draws, losses=losses)
    score_sum, square_sum = kept_sums(result, score_sum=won, square_sum=square)
    if score_sum is None:
        return result
    return replace(result, score_sum=score_sum, square_sum=square_sum)


def _seen_by_second(numbers: FloatArray) -> FloatArray:
    """Return rows of `Counts` from the view of the second players. float64 [M, 5]."""
    wins, draws, losses, won, square = numbers.T
    matches = wins + draws + losses
    # The second player's score is 1 - s, with the square 1 - 2 s + s^2.
    return np.stack(
        [losses, draws, wins, matches - won, matches - 2.0 * won + square],
        axis=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultColumns(Generic[E]):
    """Results as arrays, so that a fit of many results needs no object for each.

    Attributes:
        entrants: Names of the players.
        first: Positions of the first players in ``entrants``. int64 [M].
        second: Positions of the second players in ``entrants``. int64 [M].
        seats: Seats of first and second. int64 [M, 2].
        counts: Wins, draws and losses of ``first``. float64 [M, 3].
        sums: Sums of ``first``'s scores and of their squares. float64 [M, 2].
    """

    entrants: tuple[E, ...]
    first: IntArray
    second: IntArray
    seats: IntArray
    counts: FloatArray
    sums: FloatArray

    @property
    def matches(self) -> FloatArray:
        """Number of matches of each result. float64 [M]."""
        return np.asarray(self.counts.sum(axis=1))

    @property
    def outcomes(self) -> FloatArray:
        """Wins, draws and losses that can be resampled match by match. float64 [M, 3].

        A margin of score s counts as s of a win and 1 - s of a loss, which has the same expected
        score, and the variance of a match that is won or lost.
        """
        # These are the sums that wins, draws and losses alone would give: [M, 3] @ [3, 2].
        follow = self.counts @ np.stack([POINTS, POINTS**2], axis=1)
        matches = self.matches
        is_won_or_lost = (np.abs(self.sums - follow) <= ROUNDING * matches[:, None]).all(axis=1)
        won = self.sums[:, 0]
        parts = np.stack([won, np.zeros_like(won), np.maximum(matches - won, 0.0)], axis=1)
        return np.where(is_won_or_lost[:, None], self.counts, parts)

    def __len__(self) -> int:
        """Return the number of results."""
        return len(self.first)

    @property
    def scores(self) -> FloatArray:
        """Sums of the scores of ``first``, a draw half. float64 [M]."""
        return np.asarray(self.sums[:, 0])

    @property
    def squares(self) -> FloatArray:
        """Sums of the squared scores of ``first``. float64 [M]."""
        return np.asarray(self.sums[:, 1])

    def where(self, wanted: npt.NDArray[np.bool_]) -> ResultColumns[E]:
        """Return the results that a mask selects: bool [M]."""
        return replace(
            self,
            first=self.first[wanted],
            second=self.second[wanted],
            seats=self.seats[wanted],
            counts=self.counts[wanted],
            sums=self.sums[wanted],
        )

    def __iter__(self) -> Iterator[Result[E]]:
        """Yield the results as objects, one for each row."""
        for i, j, (a, b), counts, sums in zip(
            self.first.tolist(),
            self.second.tolist(),
            self.seats.tolist(),
            self.counts.tolist(),
            self.sums.tolist(),
            strict=True,
        ):
            first, second = self.entrants[i], self.entrants[j]
            yield _result(first, second, (a, b), counts=Counts(*counts, *sums))


def result_columns(results: Iterable[Result[E]]) -> ResultColumns[E]:
    """Return results as columns, in their order."""
    if isinstance(results, ResultColumns):
        return results
    listed = list(results)
    position: dict[E, int] = {}
    for result in listed:
        position.setdefault(result.first, len(position))
        position.setdefault(result.second, len(position))
    pairs = [(position[r.first], position[r.second]) for r in listed]
    both = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    numbers = np.array([Counts.from_results(r) for r in listed], dtype=np.float64).reshape(-1, 5)
    return ResultColumns(
        entrants=tuple(position),
        first=both[:, 0],
        second=both[:, 1],
        seats=np.array([r.seats for r in listed], dtype=np.int64).reshape(-1, 2),
        counts=numbers[:, :3],
        sums=numbers[:, 3:],
    )


def renamed(columns: ResultColumns[E], *, entrants: tuple[E, ...]) -> ResultColumns[E]:
    """Return the same results with ``entrants`` as names, which must include all old names."""
    position = {entrant: i for i, entrant in enumerate(entrants)}
    places = np.array([position[entrant] for entrant in columns.entrants], dtype=np.int64)
    return replace(
        columns, entrants=entrants, first=places[columns.first], second=places[columns.second]
    )


def merge_columns(columns: ResultColumns[E], *, entrants: tuple[E, ...]) -> ResultColumns[E]:
    """Add up results of the same entrants in the same seats, in the order of ``entrants``.

    Args:
        columns: Columns in any order.
        entrants: Names of the answer, which must include all names in ``columns``.

    Raises:
        ValueError: If a count is negative or not finite, or an entrant plays itself.
    """
    _check(columns)
    columns = renamed(columns, entrants=entrants)
    first, second, seats = columns.first, columns.second, columns.seats
    # The lower seat comes first; with equal seats, the earlier name.
    turned = (seats[:, 0] > seats[:, 1]) | ((seats[:, 0] == seats[:, 1]) & (first > second))
    first, second = np.where(turned, second, first), np.where(turned, first, second)
    seats = np.where(turned[:, None], seats[:, ::-1], seats)
    numbers = np.concatenate([columns.counts, columns.sums], axis=1)
    numbers = np.where(turned[:, None], _seen_by_second(numbers), numbers)
    order = np.lexsort((seats[:, 1], seats[:, 0], second, first))
    # Keys are sorted, so that equal ones are neighbours.
    key = np.stack([first, second, seats[:, 0], seats[:, 1]], axis=1)[order]
    # These are the first rows of each key. The slice makes the answer empty if there are no rows.
    starts = np.flatnonzero(np.r_[True, (key[1:] != key[:-1]).any(axis=1)][: len(key)])
    merged = key[starts]
    if len(starts):
        numbers = np.add.reduceat(numbers[order], starts, axis=0)
    return ResultColumns(
        entrants=entrants,
        first=merged[:, 0],
        second=merged[:, 1],
        seats=merged[:, 2:],
        counts=numbers[:, :3],
        sums=numbers[:, 3:],
    )


def over_seats(columns: ResultColumns[E]) -> ResultColumns[E]:
    """Pool the results of each pair over both orders of their seats, with equal weights.

    The advantage of a seat depends on the players: it is small among beginners, and decides the
    game among players who have solved it. So a pair's score is the mean of its scores in both
    seats. It scatters less than that of n even matches, because seats decide a part; the sums of
    squares account for that. A pair that has played in one order only keeps its results.

    Args:
        columns: Results in two seats.

    Returns:
        One result for each pair, in seats (0, 0); the entrant with the lower position is first.
    """
    swapped = columns.first > columns.second
    first = np.where(swapped, columns.second, columns.first)
    second = np.where(swapped, columns.first, columns.second)
    numbers = np.concatenate([columns.counts, columns.sums], axis=1)
    numbers = np.where(swapped[:, None], _seen_by_second(numbers), numbers)
    is_away = swapped ^ (columns.seats[:, 0] > columns.seats[:, 1])
    width = len(columns.entrants)
    keys, pair = np.unique(first * width + second, return_inverse=True)
    # Shape [2, Q, 5]: results of Q pairs with the first entrant in the lower or the higher seat.
    orders = np.zeros((2, len(keys), numbers.shape[1]))
    np.add.at(orders, (is_away.astype(np.int64), pair), numbers)
    played = orders[:, :, :3].sum(axis=2)
    is_both = (played > 0.0).all(axis=0)
    safe = np.where(played > 0.0, played, 1.0)
    # The pool has as much information as n = 4 / (1 / n_0 + 1 / n_1) matches, half in each order.
    size = np.where(is_both, 4.0 / (1.0 / safe).sum(axis=0), played.sum(axis=0))
    pooled = (orders * np.where(is_both, 0.5 * size / safe, 1.0)[:, :, None]).sum(axis=0)
    score, square = orders[:, :, 3] / safe, orders[:, :, 4] / safe
    # The difference of the two orders' means takes n / 4 (p_0 - p_1)^2 off the variance n p (1 -
    # p); of that, the variance of a match is due to chance.
    apart = 0.25 * size * (score[0] - score[1]) ** 2 - (square - score**2).mean(axis=0)
    pooled[:, 4] -= np.where(is_both, apart, 0.0)
    return ResultColumns(
        entrants=columns.entrants,
        first=keys // width,
        second=keys % width,
        seats=np.zeros((len(keys), 2), dtype=np.int64),
        counts=pooled[:, :3],
        sums=pooled[:, 3:],
    )


def met_in_both_orders(columns: ResultColumns[E]) -> bool:
    """Return whether all pairs have played in both orders of two seats."""
    if not set(columns.seats.ravel().tolist()) <= {0, 1}:
        return False
    orders = np.stack([columns.first, columns.second], axis=1)
    orders = np.where((columns.seats[:, 0] > columns.seats[:, 1])[:, None], orders[:, ::-1], orders)
    found = set(map(tuple, orders.tolist()))
    return all((second, first) in found for first, second in found)


def _check(columns: ResultColumns[E]) -> None:
    numbers = np.concatenate([columns.counts, columns.sums], axis=1)
    bad = ~(np.isfinite(numbers) & (numbers >= 0.0)).all(axis=1)
    if bad.any():
        counts = tuple(columns.counts[bad][0].tolist())
        raise ValueError(f"wins, draws and losses must be finite and at least 0, got {counts!r}")
    alone = columns.first == columns.second
    if alone.any():
        entrant = columns.entrants[int(columns.first[alone][0])]
        raise ValueError(f"an entrant cannot play itself, got {entrant!r} twice")
