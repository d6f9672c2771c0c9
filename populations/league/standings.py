"""Standings, champion and ratings of a run: pure functions of the journal's rows.

A policy's standing is that of its latest evaluated checkpoint; a ghost's is its own. Intervals are
95%; on each scale ``bot:random`` is at 0. The champion's rating is less the fit's optimism, here as
in its view, its card and the champion's curve; the curves of policies are by the fit alone, or they
would jump with each change of the lead.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from arena.types import Digest, Entrant, PlayerId, is_bot
from populations.league.league import League
from populations.records.rows import GhostRow, PolicyRow, RatingsRow
from populations.records.tables import Tables

FloatArray = npt.NDArray[np.float64]

Z95 = 1.959963984540054


class Standing(NamedTuple):
    """Line of the standings; the JSON of ``arena league RUN standings`` has the same keys.

    A named tuple: there are as many as ghosts, and it takes two thirds of a dataclass's time.

    Attributes:
        rank_low: Best rank that the player may have, with a confidence of 95%; 1 is the best. Equal
            weights are one player. None: unrated, or not recorded by the last fit.
        rank_high: The worst one.
        score: Score per opponent, in [0, 1] (`arena.matches.pair_scores.mean_score`).
        key: Directory of the weights that the standing is about, relative to the run; None for bots
            and for policies without a checkpoint.
        champion: Whether it is the population's champion.
        same_as: Policy of a ghost, if its standing is about the ghost's very weights: screens show
            the two as one.
    """

    player: PlayerId
    kind: Literal["policy", "ghost", "bot"]
    role: str
    generation: int
    agent_steps: int
    evaluated_agent_steps: int | None
    rating: float | None
    rating_low: float | None
    rating_high: float | None
    rank_low: int | None
    rank_high: int | None
    matches: int
    wins: int
    draws: int
    losses: int
    score: float | None
    mean_return: float | None
    checkpoint: Digest | None
    weights: Digest | None
    parent: str | None
    hyperparameters: dict[str, float]
    state: str
    key: str | None
    champion: bool = False
    same_as: PlayerId | None = None


class Ratings:
    """Ratings of a population, by entrant. Immutable.

    Attributes:
        row: Last fit; None before the first.
        spread: Spread in Elo, in the order of the row's entrants (see
            `populations.ratings.bradley_terry`); None where unknown, as in a journal. float64 [N,
            K].
        centre: Mean of the newest weights' rows in the spread: what is uncertain about all policies
            alike, how far away the anchor is, and makes no order among them. float64 [K].
        best_first: All entrants, those with the best lower bounds (`low`) first.
    """

    __slots__ = ("_positions", "best_first", "centre", "row", "spread")

    def __init__(
        self,
        row: RatingsRow | None,
        spread: FloatArray | None = None,
        centre: FloatArray | float = 0.0,
    ) -> None:
        self.row = row
        self.spread = spread
        self.centre = centre
        entrants = row.entrants if row is not None else ()
        self._positions: dict[str, int] = {entrant: i for i, entrant in enumerate(entrants)}
        self.best_first: list[str] = [] if row is None else _best_first(row)

    def fits(self, row: RatingsRow) -> bool:
        """Return whether a row is of the same fit."""
        return self.row is not None and self.row.entrants is row.entrants

    def index(self, entrant: str | None) -> int | None:
        """Return the index of an entrant, if it is rated."""
        return None if entrant is None else self._positions.get(entrant)

    def rating(self, entrant: str | None) -> float | None:
        """Return an entrant's rating in Elo; None if unrated."""
        i = self.index(entrant)
        return None if i is None or self.row is None else self.row.ratings[i]

    def deviation(self, entrant: str | None) -> float:
        """Return a rating's deviation without the part common to all policies, in Elo; 0 if
        unrated.

        Without a spread the common part is included.
        """
        i = self.index(entrant)
        if i is None or self.row is None:
            return 0.0
        if self.spread is None:
            return self.row.deviations[i]
        # Without the part common to all: |S_i - c|.
        own = self.spread[i] - self.centre
        return math.sqrt(float(own @ own))

    def interval(self, entrant: str | None) -> tuple[float, float, float] | None:
        """Return a rating and the ends of its 95% interval, in Elo; None if unrated."""
        i = self.index(entrant)
        if i is None or self.row is None:
            return None
        # With the common part: the interval is about the distance from the anchor.
        off = self.row.anchor_errors[i] if self.row.anchor_errors else 0.0
        half = Z95 * math.hypot(self.row.deviations[i], off)
        return self.row.ratings[i], self.row.ratings[i] - half, self.row.ratings[i] + half

    def ranks(self, entrant: str | None) -> tuple[int, int] | None:
        """Return the best and worst rank that an entrant may have; None if the fit tells none."""
        i = self.index(entrant)
        if i is None or self.row is None or not self.row.rank_lows:
            return None
        return self.row.rank_lows[i], self.row.rank_highs[i]

    def low(self, entrant: str | None) -> float | None:
        """Return the lower bound by which players are compared, in Elo; None if unrated.

        Without what results against the anchor are off by: that says nothing about others.
        """
        i = self.index(entrant)
        if i is None or self.row is None:
            return None
        return self.row.ratings[i] - Z95 * self.row.deviations[i]

    def difference(self, first: str, second: str) -> tuple[float, float] | None:
        """Return mean and deviation of how much better ``first`` is, in Elo; None if unrated.

        Without a spread errors count as independent, which overstates the deviation of nearly all
        differences.
        """
        i, j = self.index(first), self.index(second)
        if i is None or j is None or self.row is None:
            return None
        mean = self.row.ratings[i] - self.row.ratings[j]
        if i == j:
            return mean, 0.0
        if self.spread is None:
            return mean, math.hypot(self.row.deviations[i], self.row.deviations[j])
        # Var(i - j) = |S_i - S_j|^2; what both share cancels.
        gap = self.spread[i] - self.spread[j]
        return mean, math.sqrt(float(gap @ gap))


def _best_first(row: RatingsRow) -> list[str]:
    lows = np.array(row.ratings) - Z95 * np.array(row.deviations)
    # Stable, so that equal ones have an order that a resume has, too.
    order = np.argsort(-lows, kind="stable")
    return [row.entrants[i] for i in order.tolist()]


def standings(tables: Tables, league: League) -> dict[str, list[Standing]]:
    """Return all players by population: best rating first, unrated ones last."""
    populations = dict.fromkeys(seat.population for seat in league.seats)
    return {population: _standings(tables, league, population) for population in populations}


def _standings(tables: Tables, league: League, population: str) -> list[Standing]:
    ratings = Ratings(tables.ratings.get(population))
    lines = [
        _policy_standing(tables, league, ratings, row)
        for row in tables.policies.values()
        if row.population == population
    ]
    # Of a policy in quarantine only the ghost can lead.
    own = {line.player: line.weights for line in lines if line.state == "active"}
    lines += [
        _ghost_standing(tables, league, ratings, row, own=own)
        for row in tables.ghosts.values()
        if row.population == population and row.is_present
    ]
    lines += [
        _bot_standing(league, ratings, population, entrant)
        for name, entrant in league.records
        if name == population and is_bot(entrant)
    ]
    lines = _with_champion(lines, ratings.row)
    # By name among equals, so that the order does not depend on the journal's.
    return sorted(lines, key=lambda line: (line.rating is None, -(line.rating or 0.0), line.player))


def _with_champion(lines: list[Standing], row: RatingsRow | None) -> list[Standing]:
    """Return standings with the champion marked, and its rating less the optimism.

    So is the rating of players with equal weights.
    """
    best = champion(lines, row=row)
    if best is None or row is None:
        return lines
    lines = [line if line is not best else line._replace(champion=True) for line in lines]
    return [
        line if line.weights != best.weights else _lowered(line, row.optimism) for line in lines
    ]


def _lowered(line: Standing, elo: float) -> Standing:
    """Return a standing with its rating and interval moved down."""
    if line.rating is None or line.rating_low is None or line.rating_high is None:
        return line
    return line._replace(
        rating=line.rating - elo,
        rating_low=line.rating_low - elo,
        rating_high=line.rating_high - elo,
    )


def _results(
    league: League, ratings: Ratings, population: str, entrant: str | None
) -> dict[str, float | int | None]:
    record = league.record(population, entrant or "")
    rating, low, high = ratings.interval(entrant) or (None, None, None)
    best, worst = ratings.ranks(entrant) or (None, None)
    return {
        "rating": rating,
        "rating_low": low,
        "rating_high": high,
        "rank_low": best,
        "rank_high": worst,
        "matches": record.matches,
        "wins": record.wins,
        "draws": record.draws,
        "losses": record.losses,
        "score": record.score,
        "mean_return": record.return_sum / record.matches if record.matches else None,
    }


def _policy_standing(tables: Tables, league: League, ratings: Ratings, row: PolicyRow) -> Standing:
    digest = league.standing_weights(row, tables)
    current = tables.checkpoints[row.checkpoint] if row.checkpoint is not None else None
    # The origin of these weights may be a donor's checkpoint.
    evaluated = league.checkpoints[digest] if digest is not None else None
    # Weights that can be loaded even before the first evaluation; the rating stays None.
    shown = evaluated or current
    return Standing(
        player=PlayerId(row.policy),
        kind="policy",
        role=row.role,
        generation=row.generation,
        agent_steps=row.agent_steps,
        evaluated_agent_steps=evaluated.agent_steps if evaluated is not None else None,
        checkpoint=shown.digest if shown is not None else None,
        weights=shown.weights_digest if shown is not None else None,
        parent=row.parent,
        hyperparameters=dict(row.hyperparameters),
        state=row.state,
        key=shown.key if shown is not None else None,
        **_results(league, ratings, row.population, digest),  # type: ignore[arg-type]
    )


def _ghost_standing(
    tables: Tables,
    league: League,
    ratings: Ratings,
    row: GhostRow,
    *,
    own: Mapping[PlayerId, Digest | None],
) -> Standing:
    """Return the standing of a ghost; ``own`` are the weights of the policies' standings."""
    policy = PlayerId(row.policy)
    source = tables.checkpoints[row.checkpoint]
    return Standing(
        player=row.player,
        kind="ghost",
        role=row.role,
        generation=row.generation,
        agent_steps=row.agent_steps,
        # A ghost is frozen: its weights are those of its steps.
        evaluated_agent_steps=row.agent_steps,
        checkpoint=source.digest,
        weights=row.weights_digest,
        parent=row.policy,
        hyperparameters={},
        state="active",
        key=row.key,
        same_as=policy if own.get(policy) == row.weights_digest else None,
        **_results(league, ratings, row.population, row.weights_digest),  # type: ignore[arg-type]
    )


def _bot_standing(league: League, ratings: Ratings, population: str, entrant: Entrant) -> Standing:
    return Standing(
        player=PlayerId(entrant),
        kind="bot",
        role="main",
        generation=0,
        agent_steps=0,
        evaluated_agent_steps=None,
        checkpoint=None,
        weights=None,
        parent=None,
        hyperparameters={},
        state="active",
        key=None,
        **_results(league, ratings, population, entrant),  # type: ignore[arg-type]
    )


def champion(lines: list[Standing], *, row: RatingsRow | None = None) -> Standing | None:
    """Return the player with the best lower confidence bound: a rated ghost or active policy.

    A policy precedes a ghost with the same weights. None before any player is rated.

    Args:
        lines: Standings of one population.
        row: Its last fit, whose bounds decide. None: the bounds of the lines.
    """
    ratings = Ratings(row)

    def low(line: Standing) -> float | None:
        return line.rating_low if row is None else ratings.low(line.weights)

    eligible = [
        line
        for line in lines
        if line.kind != "bot" and line.state == "active" and low(line) is not None
    ]
    return max(
        eligible,
        # Equal weights have equal bounds: the policy precedes its ghost.
        key=lambda line: (low(line), line.kind == "policy", line.agent_steps),
        default=None,
    )
