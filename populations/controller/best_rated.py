"""The best-rated checkpoint of each policy, chosen by each fit of ratings.

It is that with the highest lower end of its 95% interval, among the policy's evaluated checkpoints
that are kept. Retention never removes it (`populations.controller.indexes.rated_pins`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from msgspec.structs import replace

from arena.types import Digest, PolicyId
from populations.league.league import League
from populations.ratings.model import Z95
from populations.ratings.model import Fit as BradleyTerryFit
from populations.ratings.results import Rated
from populations.records.rows import RatingsRow
from populations.records.tables import Tables

Known = tuple[float, float]
"""Rating and standard deviation, in Elo."""

DECIDED = (
    *("best", "best_ratings", "best_deviations", "former_best", "num_records"),
    *("rank_lows", "rank_highs"),
)
"""Fields in which a repeated fit is like the first one; ranks are among the players of then."""

FORGOTTEN = 1.5
"""Growth of a deviation from one fit to the next beyond which the last one knew more."""


def best_of_last_fit(tables: Tables) -> dict[Rated, Known]:
    """Return the best-rated weights of the last fit, with what it knew of them."""
    return {
        (row.population, entrant): (rating, deviation)
        for row in tables.ratings.values()
        for entrant, rating, deviation in zip(
            row.best, row.best_ratings, row.best_deviations, strict=True
        )
    }


def find_contenders(
    league: League, recent: Iterable[Iterable[Rated]], former_best: Iterable[Rated]
) -> dict[PolicyId, tuple[Rated, ...]]:
    """Return the evaluated weights of each policy whose checkpoints are kept.

    Args:
        league: Knows the checkpoints.
        recent: The newest evaluated weights of each policy.
        former_best: The best-rated ones of the last fit.
    """
    lines: dict[PolicyId, dict[Rated, None]] = {}
    for rated in chain(former_best, *recent):
        origin = league.checkpoints.get(Digest(rated[1]))
        if origin is not None and origin.state == "present":
            lines.setdefault(origin.policy, {})[rated] = None
    return {policy: tuple(line) for policy, line in lines.items()}


def best_rated(
    fitted: BradleyTerryFit[Rated],
    contenders: Mapping[PolicyId, Sequence[Rated]],
    *,
    former: Mapping[Rated, Known],
) -> dict[Rated, Known]:
    """Return the weights of each policy with the highest lower end of the 95% interval.

    Their strength never changes, but what ties them to the scale may drop out of later fits: there
    the last fit that knew them well holds.

    Args:
        fitted: Ratings of one fit.
        contenders: Weights of each policy; those that no fit has are left out.
        former: Rating and deviation of the best-rated ones of the last fit.

    Returns:
        Rating and deviation of each.
    """
    position = {rated: i for i, rated in enumerate(fitted.entrants)}

    def bounds(rated: Rated) -> Known | None:
        i, known = position.get(rated), former.get(rated)
        if i is None:
            return known
        now = (float(fitted.ratings[i]), float(fitted.deviations[i]))
        return known if known is not None and now[1] > FORGOTTEN * known[1] else now

    best: dict[Rated, Known] = {}
    for line in contenders.values():
        known = {one: found for one in line if (found := bounds(one)) is not None}
        if known:
            # r - 1.96 sd; of equal ones the first, which is that of the last fit
            first = max(known, key=lambda one: known[one][0] - Z95 * known[one][1])
            best[first] = known[first]
    return best


def with_best(
    rows: Iterable[RatingsRow],
    best: Mapping[Rated, Known],
    *,
    former: Sequence[Rated],
    num_records: int,
) -> tuple[RatingsRow, ...]:
    """Return the rows of a fit with the best-rated weights of each policy.

    Args:
        rows: Rows of the fit, one per population.
        best: Best-rated weights of all populations.
        former: Those of the fit before.
        num_records: Number of entrants with evaluation matches when the fit began.
    """
    found = []
    for row in rows:
        own = {entrant: known for (name, entrant), known in best.items() if name == row.population}
        found.append(
            replace(
                row,
                best=tuple(own),
                best_ratings=tuple(rating for rating, _ in own.values()),
                best_deviations=tuple(deviation for _, deviation in own.values()),
                former_best=tuple(entrant for name, entrant in former if name == row.population),
                num_records=num_records,
            )
        )
    return tuple(found)


def as_decided(rows: Iterable[RatingsRow], before: Iterable[RatingsRow]) -> tuple[RatingsRow, ...]:
    """Return the rows of a repeated fit with the decisions of the first one."""
    decided = {row.population: {name: getattr(row, name) for name in DECIDED} for row in before}
    return tuple(replace(row, **decided.get(row.population, {})) for row in rows)
