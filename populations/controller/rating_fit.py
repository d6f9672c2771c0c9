"""Fit of all ratings on the thread of fits, from its input to the rows of ratings.

Each fit chooses the best-rated checkpoint of each policy: the one with the highest lower end of its
95% interval, among the policy's evaluated checkpoints that are retained. Retention never removes it
(`populations.controller.indexes.rated_pins`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter

import numpy as np
from msgspec.structs import replace

from arena.types import RANDOM_BOT, Entrant, PolicyId, is_external
from populations.controller.rating_input import FitInput, Known, Snapshot, players_of
from populations.league.ratings import Ratings
from populations.ratings.bradley_terry import BradleyTerry
from populations.ratings.fitting.posterior import BoolArray, IntArray
from populations.ratings.model import Z95, E
from populations.ratings.model import Fit as BradleyTerryFit
from populations.ratings.ranks import (
    advantage_table,
    measured_cyclicity,
    open_above,
    rank_intervals,
)
from populations.ratings.results import Rated, ResultColumns
from populations.records.rows import RatingsRow


def fit_ratings(fit: FitInput) -> dict[str, Ratings]:
    """Fit all populations together, each scale with its own ``bot:random`` at 0.

    Returns:
        Ratings by population.
    """
    known = fit.known
    anchors = [(population, Entrant(RANDOM_BOT)) for population in known.populations]
    # All populations are in one fit, because they play each other and their spreads share columns.
    model = BradleyTerry(reduces_bias=True, bends=True)
    fitted = model.fit(
        fit.results,
        links=fit.links,
        entrants=fit.entrants,
        parents=fit.parents,
        times=fit.times,
        anchors=anchors,
        scale_of=itemgetter(0),
    )
    position = {rated: i for i, rated in enumerate(fitted.entrants)}
    deviations = fitted.deviations
    advantages = tuple(advantage_table(fitted, num_seats=known.num_seats).ravel().tolist())
    players = players_of(known)
    unbounded = open_above(fit.results, links=fit.links, anchors=anchors)
    rows, spreads, centres = [], {}, {}
    for population in known.populations:
        own = [rated for rated in fit.entrants if rated[0] == population]
        index = np.array([position[rated] for rated in own], dtype=np.int64)
        spreads[population] = fitted.spread[index]
        newest = [position[rated] for rated in fit.newest if rated[0] == population]
        is_player = np.array([rated in players for rated in own], dtype=bool)
        is_own = np.array([not is_external(entrant) for _, entrant in own], dtype=bool)
        # The centre is zero if no policy has been rated.
        centres[population] = fitted.spread[newest].sum(axis=0) / max(len(newest), 1)
        ranks = ranks_of(fitted, index, is_player=is_player)
        rows.append(
            RatingsRow(
                population=population,
                entrants=tuple(entrant for _, entrant in own),
                ratings=tuple(fitted.ratings[index].tolist()),
                deviations=tuple(deviations[index].tolist()),
                cyclicity=measured_cyclicity(
                    fitted,
                    _results_of(fit.results, population),
                    scale_of=itemgetter(0),
                ),
                num_tallies=known.num_tallies,
                child_deviation=max(model.child_deviation, fitted.components.child_deviation),
                pair_deviation=fitted.components.pair_deviation,
                misfit=fitted.components.misfit,
                anchor_deviation=fitted.components.anchor_deviation,
                anchor_errors=tuple(fitted.anchor_errors[index].tolist()),
                rank_lows=tuple(low for low, _ in ranks),
                rank_highs=tuple(high for _, high in ranks),
                advantages=advantages,
                open=tuple(rated[1] for rated in own if rated in unbounded),
                optimism=optimism(fitted, candidates=index[is_player & is_own], centre=newest),
            )
        )
    # Everything that decisions need is computed here, on a thread for which nothing waits.
    return {
        row.population: Ratings(row, spreads[row.population], centres[row.population])
        for row in _with_best(known, fitted, rows)
    }


def ranks_of(
    fitted: BradleyTerryFit[Rated], index: IntArray, *, is_player: BoolArray
) -> list[tuple[int, int]]:
    """Return the best and worst rank among the players that each entrant of an index may have.

    Entrants are named by weights, so players with equal weights count as one.
    """
    # The anchor's rank inherits the misfit of results against it.
    off = [
        fitted.components.anchor_deviation * float(fitted.entrants[i][1] == RANDOM_BOT)
        for i in index
    ]
    return rank_intervals(
        fitted.ratings[index],
        spread=np.column_stack([fitted.spread[index], off]),
        is_ranked=is_player,
    )


def _with_best(
    known: Snapshot, fitted: BradleyTerryFit[Rated], rows: Sequence[RatingsRow]
) -> tuple[RatingsRow, ...]:
    if known.rated is not None:
        # A repeated fit keeps the decisions of the first one.
        return as_decided(rows, known.rated)
    best = best_rated(fitted, known.contenders, former=known.former_best)
    former = tuple(known.former_best)
    return with_best(rows, best, former=former, num_records=known.num_records)


def optimism(fitted: BradleyTerryFit[E], *, candidates: IntArray, centre: Sequence[int]) -> float:
    """Return the Elo by which the best of many candidates is overrated, as it was selected.

    The same matches select the best and rate it, so its rating contains luck, even after the finals
    for the championship. A prior as wide as the candidates' real spread removes this luck. The
    result is by how much this prior moves the best one relative to the population.

    Args:
        fitted: Fit with ratings and with ratings under this prior (``shrunk``).
        candidates: Positions of the entrants that may be champion.
        centre: Positions of the population's newest weights.
    """
    if not len(candidates) or not len(centre):
        return 0.0
    # The best one is chosen by its lower bound, as the champion is.
    low = fitted.ratings[candidates] - Z95 * fitted.deviations[candidates]
    best = candidates[int(np.argmax(low))]
    moved = fitted.ratings - fitted.shrunk
    # The result is (r - r')_best - mean of (r - r') over the newest, for shrunk ratings r'.
    return max(float(moved[best] - moved[list(centre)].mean()), 0.0)


def _results_of(results: ResultColumns[Rated], population: str) -> ResultColumns[Rated]:
    """Return the results in which a player of the population took part."""
    # Flags are by entrant, since results refer to entrants by position.
    is_own = np.array([name == population for name, _ in results.entrants], dtype=bool)
    return results.where(is_own[results.first] | is_own[results.second])


DECIDED = (
    *("best", "best_ratings", "best_deviations", "former_best", "num_records"),
    *("rank_lows", "rank_highs"),
)
"""Fields that a repeated fit copies from the first one; ranks were among the players of that time.
"""

FORGOTTEN = 1.5
"""Growth of a deviation from one fit to the next beyond which the earlier rating is kept."""


def best_rated(
    fitted: BradleyTerryFit[Rated],
    contenders: Mapping[PolicyId, Sequence[Rated]],
    *,
    former: Mapping[Rated, Known],
) -> dict[Rated, Known]:
    """Return the weights of each policy with the highest lower end of the 95% interval.

    The strength of weights never changes, but results that connect them to the scale may leave
    later fits. Then the rating of the last fit that had these results is kept.

    Args:
        fitted: Ratings of one fit.
        contenders: Weights of each policy; unrated ones are left out.
        former: Rating and deviation of the best-rated weights of the last fit.

    Returns:
        Rating and deviation of each best-rated weights.
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
            # The bound is r - 1.96 sd. Among equals the first wins, which is the last fit's best.
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
        former: Best-rated weights of the previous fit.
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
