"""From the league to the rows of ratings, on a run of simulated learners."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from msgspec import structs

from arena.types import Digest, Entrant
from populations.controller import rating_input
from populations.controller.rating_fit import fit_ratings, optimism, ranks_of
from populations.controller.rating_input import (
    asked_for,
    entrants_of,
    fit_input,
    players_of,
    snapshot,
)
from populations.controller.state.events import ControllerStarted
from populations.controller.state.state import make_state
from populations.league.ratings import FloatArray, Ratings
from populations.ratings.bradley_terry import BradleyTerry
from populations.ratings.model import Fit, Result
from populations.ratings.results import Rated
from populations.records.rows import RatingsRow
from tests.populations.controller.simulated import DUEL, TAG, World, make_world, tag_spec
from tests.populations.rows import make_checkpoint, make_generation


@pytest.fixture(scope="module")
def finished() -> World:
    world = make_world({**DUEL, "evaluation": {"share": 0.3}}, joined=1)
    world.run()
    return world


def rows_of(fitted: Mapping[str, Ratings]) -> list[tuple[RatingsRow, FloatArray]]:
    """The row and the spread of each population."""
    found = []
    for known in fitted.values():
        assert known.row is not None
        assert known.spread is not None
        found.append((known.row, known.spread))
    return found


def test_a_fit_rates_all_that_were_evaluated(finished: World) -> None:
    league = finished.state.league
    known = snapshot(league)
    fit = fit_input(known)
    fitted = fit_ratings(fit)
    assert {*fit.entrants} == {*league.tables.records}
    assert len(fit.entrants) > len(players_of(known))
    assert [*fitted] == [*known.populations]
    for row, spread in rows_of(fitted):
        assert [(row.population, e) for e in row.entrants] == [
            rated for rated in fit.entrants if rated[0] == row.population
        ]
        assert row.num_tallies == league.tables.last_evaluation_sequence
        assert len(spread) == len(row.entrants)
        assert np.linalg.norm(spread, axis=1) == pytest.approx(np.array(row.deviations))
        # Simulated matches depend on skill alone, so there are no cycles.
        assert row.cyclicity < 0.02


def test_ranks_are_those_among_the_players_by_their_differences(finished: World) -> None:
    league = finished.state.league
    known = snapshot(league)
    fitted = fit_ratings(fit_input(known))
    [(row, _)] = rows_of(fitted)
    players = players_of(known)
    # Weights that belong to no player take no rank.
    assert {one for _, one in players} < set(row.entrants)
    standing = fitted["player"]
    for entrant, low, high in zip(row.entrants, row.rank_lows, row.rank_highs, strict=True):
        rivals = [one for _, one in players if one != entrant]
        # By Sidak's correction so many comparisons hold together in 95% of cases.
        z = NormalDist().inv_cdf(0.5 + 0.5 * 0.95 ** (1.0 / len(rivals)))
        gaps = [standing.difference(one, entrant) or (0.0, 0.0) for one in rivals]
        # Results against the bot fit the ratings here, so the bot is compared like the others.
        assert row.anchor_deviation == 0.0
        assert low == 1 + sum(mean > z * deviation for mean, deviation in gaps)
        assert high == len(rivals) + 1 - sum(-mean > z * deviation for mean, deviation in gaps)
    # The ranks distinguish players.
    assert min(np.subtract(row.rank_highs, row.rank_lows)) < len(players) // 2


def test_the_rank_of_the_anchor_is_as_unsure_as_results_against_it() -> None:
    bot = ("player", Entrant("bot:random"))
    a = ("player", Entrant("a"))
    results = [
        Result(first=a, second=bot, seats=(0, 1), wins=90, draws=0, losses=10),
        Result(first=bot, second=a, seats=(0, 1), wins=10, draws=0, losses=90),
    ]
    fit = BradleyTerry().fit(results, anchors=[bot])
    index, is_player = np.arange(2), np.ones(2, dtype=bool)
    assert fit.entrants[1] == bot
    assert ranks_of(fit, index, is_player=is_player) == [(1, 1), (2, 2)]
    # The difference is 381 Elo with a deviation of 41; 250 more make 253, and 1.96 times that
    # exceeds 381.
    unsure = replace(fit, components=replace(fit.components, anchor_deviation=250.0))
    assert ranks_of(unsure, index, is_player=is_player) == [(1, 2), (1, 2)]


def test_parents_are_the_nearest_ancestors_in_the_fit(finished: World) -> None:
    league = finished.state.league
    fit = fit_input(snapshot(league))
    chosen = (
        set(fit.entrants) | set(fit.parents) | {e for r in fit.results for e in (r.first, r.second)}
    )
    assert fit.parents
    for rated in chosen:
        named = {entrant for population, entrant in chosen if population == rated[0]}
        lineage = league.ancestors(Digest(rated[1]))
        ancestor = next((Entrant(one) for one in lineage if Entrant(one) in named), None)
        expected = None if ancestor is None else (rated[0], ancestor)
        assert fit.parents.get(rated) == expected


def test_results_are_those_between_entrants_of_the_fit(finished: World) -> None:
    league = finished.state.league
    fit = fit_input(snapshot(league))
    named = set(fit.results.entrants)
    scores: dict[tuple[Rated, Rated], list[float]] = {}
    for (first, second, seats), counts in league.results.items():
        assert seats == (0, 1)
        if named >= {first, second}:
            scores.setdefault((first, second), []).append(counts.points / counts.matches)
    # The mean is over both seats, each of which counts equally.
    for result in fit.results:
        home = scores.pop((result.first, result.second), [])
        away = [1.0 - score for score in scores.pop((result.second, result.first), [])]
        score = (result.wins + result.draws / 2.0) / (result.wins + result.draws + result.losses)
        assert score == pytest.approx(np.mean(home + away))
    assert not scores


def test_of_too_many_the_oldest_that_nothing_asks_for_are_left_out(
    finished: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = snapshot(finished.state.league)
    asked, every = asked_for(known), entrants_of(known)
    others = [rated for rated in every if rated not in asked]
    assert len(others) > 4
    monkeypatch.setattr(rating_input, "SLACK", 2)
    monkeypatch.setattr(rating_input, "MAX_ENTRANTS", len(every) - 5)
    assert entrants_of(known) == [rated for rated in every if rated not in others[:3]]
    # Required entrants stay, however many there are.
    monkeypatch.setattr(rating_input, "MAX_ENTRANTS", 1)
    assert entrants_of(known) == [rated for rated in every if rated in asked]


@pytest.mark.parametrize("document", [DUEL, TAG])
def test_a_resume_repeats_the_last_fit_to_the_bit(document: dict[str, object]) -> None:
    world = make_world(document, tag_spec()) if document is TAG else make_world(document)
    world.join()
    for _ in range(2000):
        world.step()
        state = world.state
        is_rated = all(len(row.entrants) > 1 for row in state.tables.ratings.values())
        is_known = bool(state.tables.ratings) and is_rated
        if is_known and not state.fits.running and not state.fits.are_stale():
            break
    before = dict(state.tables.ratings)
    # One policy was quarantined and another lost its checkpoint since the fit, so the players
    # differ.
    policy = next(iter(state.tables.policies.values()))
    state.tables.policies[policy.policy] = structs.replace(policy, checkpoint=None)
    spreads = {name: known.spread for name, known in state.fits.last.items()}
    assert spreads

    world.state = make_state(state.settings.config, world.setup, state.tables)
    world.given.clear()
    world.fits.clear()
    population = policy.population
    first, second = before[population].entrants[:2]
    assert world.state.fits.ratings(population).spread is None
    unsure = world.state.fits.ratings(population).difference(first, second)
    world.handle(ControllerStarted())
    world.fit()
    assert world.state.tables.ratings == before
    assert world.state.fits.last.keys() == spreads.keys()
    for name, spread in spreads.items():
        again = world.state.fits.last[name].spread
        assert spread is not None
        assert again is not None
        assert np.array_equal(again, spread)
    known = world.state.fits.ratings(population).difference(first, second)
    assert unsure is not None
    assert known is not None
    assert known[0] == unsure[0]


def test_no_evaluation_is_no_fit_to_speak_of() -> None:
    world = make_world()
    fitted = fit_ratings(fit_input(snapshot(world.state.league)))
    [(row, spread)] = rows_of(fitted)
    assert (row.entrants, row.ratings, row.cyclicity, len(spread)) == ((), (), 0.0, 0)


def test_time_is_that_of_the_line_whoever_had_the_weights() -> None:
    # p0 made a (100 steps) and b (300). p1, at 1000 of its own steps, copied b and made c at 1050;
    # p2, at 50 of its own, copied c and made d at 80.
    rows = [
        make_checkpoint("a", policy="p0", agent_steps=100),
        make_checkpoint("b", policy="p0", agent_steps=300, parent="a"),
        make_checkpoint("c", policy="p1", generation=2, agent_steps=1050, parent="b"),
        make_checkpoint("d", policy="p2", generation=1, agent_steps=80, parent="c"),
    ]
    begins = {"p0#0": 0, "p1#2": 1000, "p2#1": 50}
    world = make_world()
    known = structs.replace(
        snapshot(world.state.league),
        evaluated=tuple(("player", Entrant(row.weights_digest)) for row in rows),
        checkpoints={row.weights_digest: row for row in rows},
        generations={
            Entrant(name): make_generation(
                name.split("#")[0],
                int(name.split("#")[1]),
                entrant=name,
                cause="exploit",
                agent_steps_begin=steps,
            )
            for name, steps in begins.items()
        },
    )
    times = {rated[1]: time for rated, time in fit_input(known).times.items()}
    assert times == {
        "a": ("player", 100.0),
        "b": ("player", 300.0),
        "c": ("player", 350.0),
        "d": ("player", 380.0),
    }


def test_the_best_of_many_was_lucky() -> None:
    # Of forty equals of one time the best is best by luck, nearly half of which is subtracted; the
    # rest is within the prior of distances. A player that stands out by far has earned its rating.
    rng = np.random.default_rng(1)

    def rated(ahead: float) -> float:
        results = []
        for first in range(40):
            for second in range(first):
                p = 1.0 / (1.0 + 10.0 ** (ahead * ((second == 0) - (first == 0)) / 400.0))
                wins = int(rng.binomial(8, p))
                results.append(
                    Result(
                        first=first,
                        second=second,
                        seats=(0, 0),
                        wins=wins,
                        draws=0,
                        losses=8 - wins,
                    )
                )
        fit = BradleyTerry().fit(results, times={k: ("player", 0.0) for k in range(40)})
        best = float(fit.ratings.max())
        return optimism(fit, candidates=np.arange(40), centre=range(40)) / best

    assert rated(0.0) > 0.35
    assert rated(400.0) < 0.25


def test_without_candidates_nobody_was_lucky() -> None:
    fit: Fit[int] = BradleyTerry().fit([])
    assert optimism(fit, candidates=np.zeros(0, dtype=np.int64), centre=[]) == 0.0
