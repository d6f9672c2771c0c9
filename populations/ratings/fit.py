"""From evaluation results to the rows of ratings: what the worker thread does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from arena.types import RANDOM_BOT, Digest, Entrant, is_bot
from populations.league.league import League
from populations.ratings.bradley_terry import BradleyTerry
from populations.ratings.posterior import FloatArray
from populations.ratings.ranks import measured_cyclicity
from populations.ratings.results import Rated, ResultColumns
from populations.storage.tables import Tables
from populations.types import CheckpointRow, RatingsRow

RECENT_PER_POLICY = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class FitInput:
    """Plain data that a fit needs, taken from the league in one go.

    Attributes:
        results: Of evaluation matches between the entrants of the fit.
        parents: The rated entrant whose rating is the prior mean, for those that have one.
        wanted: Who is to be stored: current policies' standing weights, ghosts, bots.
        populations: All of them.
        num_tallies: Sequence of the last evaluation tally that is covered.
    """

    results: ResultColumns[Rated]
    parents: dict[Rated, Rated]
    wanted: tuple[Rated, ...]
    populations: tuple[str, ...]
    num_tallies: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """What a fit gives.

    Attributes:
        rows: One per population, with the wanted entrants only.
        spreads: By population, rows in the order of its row's entrants; see
            `populations.ratings.bradley_terry.Fit`. float64 [N, K].
    """

    rows: tuple[RatingsRow, ...]
    spreads: Mapping[str, FloatArray]


def wanted_entrants(league: League, tables: Tables) -> list[Rated]:
    """Whose ratings decide something or are shown: policies, ghosts and bots, once evaluated."""
    wanted: dict[Rated, None] = {}
    for policy in tables.policies.values():
        digest = league.standing_weights(policy, tables)
        if digest is not None:
            wanted[(policy.population, Entrant(digest))] = None
    records = league.records
    for ghost in tables.ghosts.values():
        rated = (ghost.population, Entrant(ghost.weights_digest))
        if rated in records:
            wanted[rated] = None
    wanted.update((rated, None) for rated in records if is_bot(rated[1]))
    return list(wanted)


def fit_input(
    league: League, tables: Tables, *, rated: Mapping[str, RatingsRow] | None = None
) -> FitInput:
    """Choose the entrants of a fit: the wanted ones and each policy's recently evaluated weights.

    Older weights of policies would make every fit of a long run larger than the one before; what
    they say about the present is small, and lineage skips over them.

    Args:
        league: Who was evaluated, with which results.
        tables: The journal's rows.
        rated: The rows of a fit to be repeated, whose entrants are the wanted ones. None: what
            `wanted_entrants` says.
    """
    if rated is None:
        wanted = wanted_entrants(league, tables)
    else:
        wanted = [(row.population, entrant) for row in rated.values() for entrant in row.entrants]
    chosen = dict.fromkeys(wanted)
    recent: dict[str, list[Rated]] = {}
    checkpoints = league.checkpoints
    for evaluated in league.records:
        origin = checkpoints.get(Digest(evaluated[1]))
        if origin is not None:
            recent.setdefault(origin.policy, []).append(evaluated)
    for line in recent.values():
        chosen.update(dict.fromkeys(line[-RECENT_PER_POLICY:]))
    return FitInput(
        results=league.results.select(chosen),
        parents=_parents(league, chosen),
        wanted=tuple(wanted),
        populations=tuple(dict.fromkeys(seat.population for seat in league.seats)),
        num_tallies=league.last_evaluation_sequence,
    )


def _parents(league: League, chosen: Iterable[Rated]) -> dict[Rated, Rated]:
    """The nearest chosen ancestor of each chosen entrant that has one."""
    by_population: dict[str, dict[str, Rated]] = {}
    for rated in chosen:
        by_population.setdefault(rated[0], {})[rated[1]] = rated
    parents: dict[Rated, Rated] = {}
    for named in by_population.values():
        for entrant, ancestor in _nearest(league.checkpoints, named):
            parents[named[entrant]] = named[ancestor]
    return parents


def _nearest(
    checkpoints: Mapping[Digest, CheckpointRow], named: Mapping[str, Rated]
) -> Iterator[tuple[str, str]]:
    """Pairs of a named entrant and its nearest named ancestor.

    Every checkpoint between named ones is passed once, whoever descends from it.
    """
    passed: dict[str, str | None] = {}
    for entrant in named:
        path: list[str] = []
        found: str | None = None
        origin = checkpoints.get(Digest(entrant))
        while origin is not None and (above := origin.parent) is not None:
            if above in named:
                found = above
                break
            if above in passed:
                found = passed[above]
                break
            passed[above] = None
            path.append(above)
            origin = checkpoints.get(above)
        passed.update(dict.fromkeys(path, found))
        if found is not None and found != entrant:
            yield entrant, found


def fit_ratings(fit: FitInput) -> Fitted:
    """Fit all populations together, each scale with its own ``bot:random`` at 0."""
    anchors = [(population, Entrant(RANDOM_BOT)) for population in fit.populations]
    fitted = BradleyTerry().fit(
        fit.results, entrants=fit.wanted, parents=fit.parents, anchors=anchors
    )
    position = {rated: i for i, rated in enumerate(fitted.entrants)}
    deviations = fitted.deviations
    rows, spreads = [], {}
    for population in fit.populations:
        wanted = [rated for rated in fit.wanted if rated[0] == population]
        index = np.array([position[rated] for rated in wanted], dtype=np.int64)
        spreads[population] = fitted.spread[index]
        rows.append(
            RatingsRow(
                population=population,
                entrants=tuple(entrant for _, entrant in wanted),
                ratings=tuple(fitted.ratings[index].tolist()),
                deviations=tuple(deviations[index].tolist()),
                cyclicity=measured_cyclicity(fitted, _results_of(fit.results, population)),
                num_tallies=fit.num_tallies,
            )
        )
    return Fitted(rows=tuple(rows), spreads=spreads)


def _results_of(results: ResultColumns[Rated], population: str) -> ResultColumns[Rated]:
    """Those in which a player of the population took part."""
    is_own = np.array([name == population for name, _ in results.entrants], dtype=bool)
    return results.where(is_own[results.first] | is_own[results.second])
