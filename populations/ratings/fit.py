"""From evaluation results to the rows of ratings: what the worker thread does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from arena.types import RANDOM_BOT, Digest, Entrant, is_bot
from populations.core import Result
from populations.league.league import League
from populations.ratings.bradley_terry import BradleyTerry
from populations.ratings.results import Rated
from populations.storage.tables import Tables
from populations.types import RatingsRow

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

    results: tuple[Result[Rated], ...]
    parents: dict[Rated, Rated]
    wanted: tuple[Rated, ...]
    populations: tuple[str, ...]
    num_tallies: int


def wanted_entrants(league: League, tables: Tables) -> list[Rated]:
    """Whose ratings decide something or are shown: policies, ghosts and bots, once evaluated."""
    wanted: dict[Rated, None] = {}
    for policy in tables.policies.values():
        digest = league.standing_weights(policy, tables)
        if digest is not None:
            wanted[(policy.population, Entrant(digest))] = None
    for ghost in tables.ghosts.values():
        if league.is_evaluated(ghost.population, ghost.weights_digest):
            wanted[(ghost.population, Entrant(ghost.weights_digest))] = None
    for population, entrant in league.records:
        if is_bot(entrant):
            wanted[(population, entrant)] = None
    return list(wanted)


def fit_input(league: League, tables: Tables) -> FitInput:
    """Choose the entrants of a fit: the wanted ones and each policy's recently evaluated weights.

    Older weights of policies would make every fit of a long run larger than the one before; what
    they say about the present is small, and lineage skips over them.
    """
    wanted = wanted_entrants(league, tables)
    chosen = dict.fromkeys(wanted)
    recent: dict[str, list[Rated]] = {}
    for population, entrant in league.records:
        origin = league.checkpoints.get(Digest(entrant))
        if origin is not None:
            recent.setdefault(origin.policy, []).append((population, entrant))
    for evaluated in recent.values():
        chosen.update(dict.fromkeys(evaluated[-RECENT_PER_POLICY:]))
    return FitInput(
        results=tuple(
            Result(first=first, second=second, seats=seats, wins=wins, draws=draws, losses=losses)
            for (first, second, seats), (wins, draws, losses) in league.results.items()
            if first in chosen and second in chosen
        ),
        parents=dict(_parents(league, chosen)),
        wanted=tuple(wanted),
        populations=tuple(dict.fromkeys(seat.population for seat in league.seats)),
        num_tallies=league.last_evaluation_sequence,
    )


def _parents(league: League, chosen: Iterable[Rated]) -> Iterable[tuple[Rated, Rated]]:
    by_population: dict[str, set[Entrant]] = {}
    for population, entrant in chosen:
        by_population.setdefault(population, set()).add(entrant)
    for population, entrant in chosen:
        if not is_bot(entrant):
            ancestor = league.rated_ancestor(Digest(entrant), by_population[population])
            if ancestor is not None:
                yield (population, entrant), (population, ancestor)


def fit_ratings(fit: FitInput) -> tuple[RatingsRow, ...]:
    """Fit all populations together, each scale with its own ``bot:random`` at 0.

    Returns:
        One row per population, with the wanted entrants only.
    """
    anchors = [(population, Entrant(RANDOM_BOT)) for population in fit.populations]
    fitted = BradleyTerry().fit(
        fit.results, entrants=fit.wanted, parents=fit.parents, anchors=anchors
    )
    rows = []
    for population in fit.populations:
        wanted = [rated for rated in fit.wanted if rated[0] == population]
        index = [fitted.index(rated) for rated in wanted]
        covariance = fitted.covariance[np.ix_(index, index)]
        rows.append(
            RatingsRow(
                population=population,
                entrants=tuple(entrant for _, entrant in wanted),
                ratings=tuple(float(fitted.ratings[i]) for i in index),
                covariance=tuple(float(value) for value in covariance.ravel()),
                num_tallies=fit.num_tallies,
            )
        )
    return tuple(rows)
