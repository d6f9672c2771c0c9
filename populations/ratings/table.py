"""Ratings of a table of two-player matches by any of the rating models.

Shapes: N players, M matches, C kinds of matches (home, away, score), B resamples.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from populations.ratings.alpha_rank import alpha_rank
from populations.ratings.bootstrap import Intervals, bootstrap, intervals
from populations.ratings.bradley_terry import ELO_PER_UNIT, BradleyTerry
from populations.ratings.elo import K_FACTOR, elo_of_many
from populations.ratings.model import Z95
from populations.ratings.nash import nash_averaging, normalized
from populations.ratings.ranks import measured_cyclicity, rank_intervals
from populations.ratings.results import POINTS, ResultColumns
from populations.ratings.weng_lin import ELO_PER_MU, weng_lin_ratings

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Model = Literal["bradley_terry", "elo", "weng_lin", "nash_averaging", "alpha_rank"]
Progress = Callable[[int, int], None]
"""Callback that gets the amount of work done, and the total amount."""

SEATS = (0, 1)
NO_SEATS = (0, 0)
"""Seats of results in which no advantage of a seat is fitted."""

NUM_RESAMPLES = 200
MAX_ORDERS = 20_000_000
"""Maximum number of entries of resampled orders in memory at once."""

MASS = 1e-6
"""Probability in the mixture below which a player is left out."""


@dataclass(frozen=True, kw_only=True)
class MatchTable:
    """Matches of two players, in the order in which they were played.

    Attributes:
        players: All players, sorted.
        homes: Index of the player in the first seat [M].
        aways: Index of the player in the second seat [M].
        scores: Score of the player in the first seat, in [0, 1] [M].
    """

    players: tuple[str, ...]
    homes: IntArray
    aways: IntArray
    scores: FloatArray

    @classmethod
    def from_matches(cls, matches: Iterable[tuple[str, str, float]]) -> MatchTable:
        """Make a table from matches, each as (home, away, score of home)."""
        # Arrays of numbers take only 24 bytes for each of millions of matches.
        numbers: dict[str, int] = {}
        homes, aways, scores = array("q"), array("q"), array("d")
        for home, away, score in matches:
            homes.append(numbers.setdefault(home, len(numbers)))
            aways.append(numbers.setdefault(away, len(numbers)))
            scores.append(score)
        players = tuple(sorted(numbers))
        places = np.empty(len(players), dtype=np.int64)
        places[[numbers[player] for player in players]] = np.arange(len(players))
        return cls(
            players=players,
            homes=places[np.frombuffer(homes, dtype=np.int64)],
            aways=places[np.frombuffer(aways, dtype=np.int64)],
            scores=np.frombuffer(scores, dtype=np.float64),
        )

    def num_matches(self) -> IntArray:
        """Return the number of matches of each player [N]."""
        size = len(self.players)
        return np.bincount(self.homes, minlength=size) + np.bincount(self.aways, minlength=size)

    @cached_property
    def kinds(self) -> tuple[FloatArray, IntArray]:
        """Distinct matches as home, away and score [C, 3]; and the number of each [C]."""
        scores, score = np.unique(self.scores, return_inverse=True)
        # Each kind is encoded as one number, because numbers sort much faster than rows.
        size = len(self.players)
        keys = (self.homes * size + self.aways) * len(scores) + score
        found, counts = np.unique(keys, return_counts=True)
        pairs, score = np.divmod(found, len(scores))
        homes, aways = np.divmod(pairs, size)
        return np.stack([homes, aways, scores[score]], axis=1), counts


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedTable:
    """Ratings of a table.

    Attributes:
        players: All players, as in the table.
        ratings: Ratings in the unit of the model. Shape [N].
        intervals: Intervals of the ratings. None: the model needs resamples and there are none.
        cyclicity: Share of the results that no rating can express, beyond chance; see
            `populations.ratings.ranks.measured_cyclicity`.
        mixture: Equilibrium of Nash averaging [N]. None for the other models.
        advantage: Advantage of the home player in Elo; None: it was not fitted.
    """

    players: tuple[str, ...]
    ratings: FloatArray
    intervals: Intervals | None
    cyclicity: float
    mixture: FloatArray | None = None
    advantage: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Options of a rating.

    Attributes:
        anchor: Player whose rating is 0. None: the mean is 0, for Nash averaging the mean over the
            mixture. Alpha-rank ignores it, because its shares have no free zero.
        k_factor: Elo's k-factor.
        num_resamples: Resamples for the intervals. 0: Wald's intervals for Bradley-Terry, none for
            Elo, Nash averaging and alpha-rank. None: the model's default, which is 0 for Elo, whose
            resampled intervals contain the true strength in only 58 to 91% of cases. Weng-Lin's
            intervals follow from its sigma.
        seed: Seed of the resampling.
        has_seats: Whether Bradley-Terry fits an advantage of the home player; no other model does.
    """

    anchor: str | None = None
    k_factor: float = K_FACTOR
    num_resamples: int | None = None
    seed: int = 0
    has_seats: bool = True

    def resamples(self, model: Model) -> int:
        """Return the number of resamples for a model."""
        if self.num_resamples is not None:
            return self.num_resamples
        return 0 if model in ("bradley_terry", "elo") else NUM_RESAMPLES


def rate_table(
    table: MatchTable,
    *,
    model: Model,
    settings: Settings | None = None,
    progress: Progress = lambda done, total: None,
) -> RatedTable:
    """Return ratings of all players in a table of matches.

    Elo and Weng-Lin follow the order of the matches, the others do not. Weng-Lin uses only which
    side was ahead; for the others a score s counts as s of a win and 1 - s of a loss.

    Raises:
        ValueError: If the anchor is none of the players.
    """
    chosen = settings or Settings()
    if chosen.anchor is not None and chosen.anchor not in table.players:
        raise ValueError(f"anchor must be one of the players, got {chosen.anchor!r}")
    totals = _score_totals(table)
    mixture: FloatArray | None = None
    found: Intervals | None
    advantage: float | None = None
    if model == "bradley_terry":
        ratings, found, advantage = _bradley_terry(table, settings=chosen)
    elif model == "weng_lin":
        ratings, found = _weng_lin(table, anchor=chosen.anchor, progress=progress)
    else:
        ratings = _estimate(table, totals, model=model, settings=chosen)
        rows = _resampled(table, model=model, settings=chosen, progress=progress)
        # Rounding errors are below 1e-6 Elo points, and below 1e-9 in shares.
        tie = 1e-9 if model == "alpha_rank" else 1e-6
        found = intervals(ratings, rows, tie=tie) if chosen.resamples(model) else None
        if model == "nash_averaging":
            mixture = nash_mixture(table)
    return RatedTable(
        players=table.players,
        ratings=ratings,
        intervals=found,
        cyclicity=_cyclicity(table),
        mixture=mixture,
        advantage=advantage,
    )


def share_told_apart(table: MatchTable) -> float:
    """Return how well a home advantage can be distinguished from skills in this table, in [0, 1].

    Skills look like a home advantage if home's skill exceeds away's by the same amount in every
    match. The answer is the part of an advantage of 1 that no skills x explain: the minimal mean of
    (1 - (x_home - x_away))^2. It is 0 if players can be ordered so that home is always the next
    one, as in a list of challengers with their predecessors, and 1 if each pair occurs equally
    often in both orders.
    """
    (kinds, counts), size = table.kinds, len(table.players)
    homes, aways = kinds[:, 0].astype(np.int64), kinds[:, 1].astype(np.int64)
    met = np.zeros((size, size))
    np.add.at(met, (homes, aways), counts)
    # The normal equations have the graph's Laplacian, and matches at home minus matches away.
    laplacian = np.diag((met + met.T).sum(axis=1)) - met - met.T
    surplus = met.sum(axis=1) - met.sum(axis=0)
    explained = surplus @ np.linalg.lstsq(laplacian, surplus, rcond=None)[0]
    return float(1.0 - explained / counts.sum())


def nash_mixture(table: MatchTable) -> FloatArray:
    """Return the Nash mixture of highest entropy of the pairs' log-odds [N]."""
    # Smaller masses are rounding errors of the solver, for players without mass.
    mixture = nash_averaging(_log_odds(_score_totals(table)))[1]
    return normalized(np.where(mixture > MASS, mixture, 0.0))


def share_of_pairs_met(table: MatchTable) -> float:
    """Return the share of pairs of players that have played each other, in [0, 1]."""
    totals = _score_totals(table)
    size = len(totals)
    met = int(((totals + totals.T) > 0.0).sum())
    return met / (size * (size - 1))


def _cyclicity(table: MatchTable) -> float:
    """Return the cyclicity of a fit without an advantage of seats.

    In a table that always lists winners first, such an advantage would explain everything, even a
    cycle.
    """
    results = _results(table, seats=NO_SEATS)
    return measured_cyclicity(BradleyTerry().fit(results), results)


def _bradley_terry(
    table: MatchTable, *, settings: Settings
) -> tuple[FloatArray, Intervals, float | None]:
    results = _results(table, seats=SEATS if settings.has_seats else NO_SEATS)
    anchors = () if settings.anchor is None else (settings.anchor,)
    fit = BradleyTerry().fit(results, anchors=anchors)
    index = [fit.index(player) for player in table.players]
    ratings: FloatArray = fit.ratings[index]
    advantage = fit.advantages.get(SEATS)
    num_resamples = settings.resamples("bradley_terry")
    if num_resamples == 0:
        return *_normal(ratings, fit.spread[index]), advantage
    rng = np.random.default_rng(settings.seed)
    drawn = bootstrap(
        BradleyTerry(), results, anchors=anchors, num_resamples=num_resamples, rng=rng
    )
    return ratings, intervals(ratings, drawn[:, index]), advantage


def _results(table: MatchTable, *, seats: tuple[int, int]) -> ResultColumns[str]:
    kinds, counts = table.kinds
    homes, aways, scores = kinds.T
    # A score of exactly 0.5 is a draw, which has less variance than half a win and half a loss.
    is_draw = scores == 0.5
    parts = np.stack([scores * ~is_draw, is_draw, (1.0 - scores) * ~is_draw], axis=1)
    outcomes = counts[:, None] * parts
    return ResultColumns(
        entrants=table.players,
        first=homes.astype(np.int64),
        second=aways.astype(np.int64),
        seats=np.tile(seats, (len(counts), 1)),
        counts=outcomes,
        sums=outcomes @ np.stack([POINTS, POINTS**2], axis=1),
    )


def _weng_lin(
    table: MatchTable, *, anchor: str | None, progress: Progress
) -> tuple[FloatArray, Intervals]:
    def matches() -> Iterator[tuple[int, int, float]]:
        rows = zip(table.homes.tolist(), table.aways.tolist(), table.scores.tolist(), strict=True)
        for done, row in enumerate(rows):
            progress(done, len(table.scores))
            yield row

    rated = weng_lin_ratings(matches())
    players = range(len(table.players))
    mu, sigma = ELO_PER_MU * np.array([rated[player] for player in players]).T
    # Weng-Lin's estimates are independent, but reported ratings are relative to a common zero.
    zero = np.full(len(players), 1.0 / len(players))
    if anchor is not None:
        zero = (np.array(table.players) == anchor).astype(np.float64)
    # R = I - 1 z^T: ratings R mu with covariance R diag(sigma^2) R^T.
    relative = np.eye(len(players)) - zero[None, :]
    return _normal(relative @ mu, relative * sigma)


def _normal(ratings: FloatArray, spread: FloatArray) -> tuple[FloatArray, Intervals]:
    half = Z95 * np.linalg.norm(spread, axis=1)
    ranks = tuple(rank_intervals(ratings, spread=spread))
    return ratings, Intervals(lows=ratings - half, highs=ratings + half, ranks=ranks)


def _estimate(
    table: MatchTable, totals: FloatArray, *, model: Model, settings: Settings
) -> FloatArray:
    if model == "elo":
        order = np.arange(len(table.scores))[None, :]
        ratings: FloatArray = _elo(table, order, settings=settings)[0]
        return ratings
    return _of_totals(totals, model=model, settings=settings, players=table.players)


def _resampled(
    table: MatchTable, *, model: Model, settings: Settings, progress: Progress
) -> Iterator[FloatArray]:
    """Yield ratings of resampled tables, each of M matches drawn with replacement."""
    rng = np.random.default_rng(settings.seed)
    total = settings.resamples(model)
    if model == "elo":
        size = len(table.scores)
        chunk = max(1, min(total, MAX_ORDERS // size))
        for done in range(0, total, chunk):
            progress(done, total)
            shape = (min(chunk, total - done), size)
            # Indices are sorted, so that drawn matches stay in the order in which they were played.
            orders = np.sort(rng.integers(size, size=shape, dtype=np.int32), axis=1)
            yield from _elo(table, orders, settings=settings)
        return
    kinds, counts = table.kinds
    shares = counts / counts.sum()
    for done in range(total):
        progress(done, total)
        drawn = rng.multinomial(int(counts.sum()), shares)
        totals = _totals(kinds, drawn, size=len(table.players))
        yield _of_totals(totals, model=model, settings=settings, players=table.players)


def _elo(table: MatchTable, orders: npt.NDArray[np.integer], *, settings: Settings) -> FloatArray:
    ratings = elo_of_many(
        table.homes,
        table.aways,
        table.scores,
        orders=orders,
        num_players=len(table.players),
        k_factor=settings.k_factor,
    )
    if settings.anchor is None:
        zeros = ratings.mean(axis=1, keepdims=True)
    else:
        zeros = ratings[:, [table.players.index(settings.anchor)]]
    return np.asarray(ratings - zeros, dtype=np.float64)


def _of_totals(
    totals: FloatArray, *, model: Model, settings: Settings, players: tuple[str, ...]
) -> FloatArray:
    if model == "alpha_rank":
        # Scores have a Jeffreys prior of half a win each, so a pair without matches is even.
        return alpha_rank((totals + 0.5) / (totals + totals.T + 1.0) - 0.5)
    skills = ELO_PER_UNIT * nash_averaging(_log_odds(totals))[0]
    if settings.anchor is not None:
        skills = skills - skills[players.index(settings.anchor)]
    # Members of the mixture have skill 0 apart from rounding errors, and must be equal.
    return np.where(np.abs(skills) < 1e-9, 0.0, skills)


def _score_totals(table: MatchTable) -> FloatArray:
    kinds, counts = table.kinds
    return _totals(kinds, counts, size=len(table.players))


def _totals(kinds: FloatArray, counts: IntArray, *, size: int) -> FloatArray:
    """Sum the scores of the row against the column [N, N]."""
    homes, aways = kinds[:, 0].astype(np.int64), kinds[:, 1].astype(np.int64)
    totals = np.zeros((size, size))
    np.add.at(totals, (homes, aways), counts * kinds[:, 2])
    np.add.at(totals, (aways, homes), counts * (1.0 - kinds[:, 2]))
    return totals


def _log_odds(totals: FloatArray) -> FloatArray:
    """Return log-odds of the posterior mean score (Jeffreys prior); 0 without matches [N, N]."""
    return np.asarray(np.log((totals + 0.5) / (totals.T + 0.5)))
