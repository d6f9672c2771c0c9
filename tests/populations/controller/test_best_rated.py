"""The best-rated checkpoint: by the lower end of its interval, all of them in one fit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from arena.types import Entrant, PolicyId
from populations.controller.rating_fit import as_decided, best_rated, with_best
from populations.ratings.results import Rated
from populations.records.rows import RatingsRow
from tests.populations.rows import make_ratings

P0, P1 = PolicyId("player/p000"), PolicyId("player/p001")


def rated(name: str, population: str = "player") -> Rated:
    return population, Entrant(name)


def fitted(**known: tuple[float, float]) -> Any:
    """A fit with a rating and a deviation of each entrant."""
    return SimpleNamespace(
        entrants=tuple(rated(name) for name in known),
        ratings=np.array([rating for rating, _ in known.values()]),
        deviations=np.array([deviation for _, deviation in known.values()]),
    )


def row(population: str = "player", **fields: Any) -> RatingsRow:
    return make_ratings(population=population, **fields)


def test_a_higher_rating_that_is_less_sure_is_not_the_best() -> None:
    fit = fitted(sure=(500.0, 20.0), lucky=(560.0, 90.0), other=(100.0, 5.0))
    lines = {P0: [rated("lucky"), rated("sure")], P1: [rated("other")]}
    assert best_rated(fit, lines, former={}) == {
        rated("sure"): (500.0, 20.0),
        rated("other"): (100.0, 5.0),
    }


def test_weights_that_no_fit_has_are_not_the_best() -> None:
    assert best_rated(fitted(), {P0: [rated("unknown")]}, former={}) == {}
    found = best_rated(fitted(a=(-50.0, 9.0)), {P0: [rated("unknown"), rated("a")]}, former={})
    assert list(found) == [rated("a")]


def test_the_best_of_before_is_rated_again_in_the_same_fit() -> None:
    fit = fitted(before=(400.0, 20.0), new=(450.0, 20.0))
    former = {rated("before"): (700.0, 20.0)}
    line = {P0: [rated("before"), rated("new")]}
    assert list(best_rated(fit, line, former=former)) == [rated("new")]


def test_without_the_matches_that_tie_it_to_the_scale_the_last_fit_holds() -> None:
    former = {rated("before"): (700.0, 20.0)}
    line = {P0: [rated("before"), rated("new")]}
    for fit in (fitted(before=(0.0, 200.0), new=(600.0, 20.0)), fitted(new=(600.0, 20.0))):
        assert best_rated(fit, line, former=former) == {rated("before"): (700.0, 20.0)}
    fit = fitted(before=(0.0, 200.0), new=(710.0, 20.0))
    assert list(best_rated(fit, line, former=former)) == [rated("new")]


def test_each_population_has_its_own_rows() -> None:
    best = {rated("a"): (1.0, 2.0), rated("b", "prey"): (3.0, 4.0)}
    rows = with_best([row(), row("prey")], best, former=[rated("c", "prey")], num_records=7)
    assert [one.best for one in rows] == [("a",), ("b",)]
    assert (rows[1].best_ratings, rows[1].best_deviations) == ((3.0,), (4.0,))
    assert [one.former_best for one in rows] == [(), ("c",)]
    assert {one.num_records for one in rows} == {7}


def test_a_repeated_fit_decides_nothing_anew() -> None:
    before = row(best=(Entrant("a"),), best_ratings=(1.0,), best_deviations=(2.0,), num_records=3)
    (again,) = as_decided([row()], [before])
    assert again == before
