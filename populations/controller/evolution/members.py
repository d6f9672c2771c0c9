"""Members of a population for selection: policies with their records and ratings."""

from __future__ import annotations

from arena.types import Digest, Entrant, PolicyId
from populations.config.run_config import RunConfig
from populations.controller.indexes.player_strengths import nearest_rated
from populations.controller.state.fits import Fits
from populations.controller.state.state import Indexes
from populations.core import CommonScores, Member, RatingDifference, Score
from populations.league.league import League
from populations.league.ratings import Ratings
from populations.pbt.statistics import on_common_opponents
from populations.ratings.results import Rated
from populations.records.rows import PolicyRow

Opponent = tuple[Rated, tuple[int, int]]
"""Opponent, and the pair of seats in the match: own seat, the opponent's seat."""


def is_reference(config: RunConfig, policy: PolicyRow) -> bool:
    """Return whether a policy is the reference, whose hyperparameters are never explored."""
    return config.pbt_of(policy.population).reference and policy.index == 0


def standing_weights_of(fits: Fits, row: PolicyRow) -> Digest | None:
    """Return the weights that represent a policy in standings; None: none of its line has played.

    They are the latest evaluated ones. If the last fit does not cover these yet, they are the
    latest that it covers, if of the same generation. Otherwise, with many learners, a policy might
    never be rated when a decision is due.
    """
    latest = fits.league.standing_weights(row)
    ratings = fits.ratings(row.population)
    if latest is None or ratings.row is None or ratings.index(latest) is not None:
        return latest
    position = nearest_rated(ratings, fits.league, latest)
    if position is None:
        return latest
    rated = Digest(ratings.row.entrants[position])
    made = fits.league.checkpoints[rated]
    # Rated weights of an earlier generation are no measurement of the present one.
    is_own = (made.policy, made.generation) == (row.policy, row.generation)
    return rated if is_own else latest


def _standing(fits: Fits, policy: PolicyId) -> Digest | None:
    """Return the weights that represent a policy in standings; None if it is not active."""
    row = fits.league.tables.policies.get(policy)
    if row is None or row.state != "active":
        return None
    return standing_weights_of(fits, row)


def members_of(config: RunConfig, indexes: Indexes, population: str, *, role: str) -> list[Member]:
    """Return the active policies of a population with a role, as members for PBT's rules."""
    # Members of the last decision are reused, except those that have changed since.
    ratings, tables = indexes.fits.ratings(population), indexes.tables
    kept, policies = indexes.members.current(population, ratings=ratings)
    for policy in policies:
        row = tables.policies[policy]
        kept.set(
            policy, _member(config, indexes.fits, ratings, row) if row.state == "active" else None
        )
    # PBT ranks within a role: an exploiter that loses to other players is not worse than a main
    # agent, and its exploits would be lost if it copied one.
    return kept.listed(role, tables)


def _member(config: RunConfig, fits: Fits, ratings: Ratings, row: PolicyRow) -> Member:
    digest = standing_weights_of(fits, row)
    record = fits.league.record(row.population, digest or "")
    matches, total = record.matches, record.return_sum
    squares = record.return_sum_of_squares
    # s^2 = (sum x^2 - (sum x)^2 / n) / (n - 1)
    variance = (squares - total**2 / matches) / (matches - 1) if matches > 1 else 0.0
    return Member(
        policy=row.policy,
        index=row.index,
        rating=ratings.rating(digest),
        deviation=ratings.deviation(digest),
        num_matches=fits.league.matches_in_generation(row),
        is_reference=is_reference(config, row),
        num_returns=matches,
        return_mean=total / matches if matches else 0.0,
        # Rounding may make the variance slightly negative.
        return_variance=max(variance, 0.0),
    )


def rating_difference(fits: Fits, population: str) -> RatingDifference:
    """Return a function that gives the rating difference, first minus second, of two policies.

    The function is valid for one decision only.
    """
    ratings = fits.ratings(population)
    # Standing weights are cached, because they do not change during a decision.
    standing: dict[PolicyId, str] = {}

    def standing_of(policy: PolicyId) -> str:
        if policy not in standing:
            standing[policy] = _standing(fits, policy) or ""
        return standing[policy]

    def difference(first: PolicyId, second: PolicyId) -> tuple[float, float] | None:
        return ratings.difference(standing_of(first), standing_of(second))

    return difference


def common_scores(fits: Fits, population: str) -> CommonScores | None:
    """Return a function that gives two policies' scores against common opponents.

    None in cooperation, where there are no opponents.
    """
    if fits.league.is_cooperation:
        return None

    def common(first: PolicyId, second: PolicyId) -> tuple[Score, Score] | None:
        one, other = _standing(fits, first), _standing(fits, second)
        if one is None or other is None or one == other:
            return None
        # Matches between the two themselves are excluded, because they have no common opponent.
        pair = {(population, Entrant(one)), (population, Entrant(other))}
        return on_common_opponents(
            _scores(fits.league, (population, Entrant(one)), without=pair),
            _scores(fits.league, (population, Entrant(other)), without=pair),
        )

    return common


def _scores(league: League, rated: Rated, *, without: set[Rated]) -> dict[Opponent, Score]:
    """Return an entrant's scores in evaluation, by opponent and pair of seats."""
    scores: dict[Opponent, Score] = {}
    for (first, second, (own, other)), counts in league.results.of_entrant(rated):
        matches = counts.matches
        if first == rated and second not in without:
            scores[second, (own, other)] = Score(points=counts.points, matches=matches)
        elif second == rated and first not in without:
            scores[first, (other, own)] = Score(points=counts.lost_points, matches=matches)
    return scores
