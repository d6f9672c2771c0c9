"""Standings, champion and ratings of a simulated league whose true skills are known."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from arena.types import Digest, Entrant, PlayerId, PolicyId
from populations.choices import number_of
from populations.league.league import League
from populations.league.ratings import Ratings
from populations.league.standings import Standing, champion, standings
from populations.ratings.model import Z95
from populations.records.rows import GhostRow, RatingsRow
from populations.records.tables import GHOSTS, RATINGS, Table
from tests.populations.controller.simulated import DUEL, TAG, World, make_world, tag_spec
from tests.populations.rows import make_ratings


@pytest.fixture(scope="module")
def finished() -> World:
    world = make_world(
        {**DUEL, "stop": {"agent_steps_per_policy": 8000}},
        joined=1,
        learning=lambda trainee: 2e5 * number_of(trainee.hyperparameters["learning_rate"]),
    )
    world.run()
    return world


def test_standings_list_every_player_best_first_with_the_random_bot_at_zero(
    finished: World,
) -> None:
    lines = standings(finished.state.league)["player"]
    rated = [line.rating for line in lines if line.rating is not None]
    assert rated == sorted(rated, reverse=True)
    bot = next(line for line in lines if line.kind == "bot")
    assert (bot.rating, bot.rating_low, bot.rating_high) == (0.0, 0.0, 0.0)
    policies = {str(line.player) for line in lines if line.kind == "policy"}
    assert policies == {str(policy) for policy in finished.state.tables.policies}
    for line in lines:
        assert line.matches == line.wins + line.draws + line.losses


def test_the_champion_and_ghosts_of_the_weights_that_policies_have_are_marked(
    finished: World,
) -> None:
    lines = standings(finished.state.league)["player"]
    best = champion(lines)
    assert best is not None
    assert [line.player for line in lines if line.champion] == [best.player]
    weights = {line.player: line.weights for line in lines}
    ghosts = [line for line in lines if line.kind == "ghost"]
    assert any(line.same_as for line in ghosts)
    for line in ghosts:
        has_own = weights[PlayerId(line.parent or "")] == line.weights
        assert line.same_as == (line.parent if has_own else None)
    assert not [line for line in lines if line.kind != "ghost" and line.same_as]


def test_the_ghost_of_a_policy_in_quarantine_stands_for_itself(finished: World) -> None:
    tables, league = finished.state.tables, finished.state.league
    ghost = next(line for line in standings(league)["player"] if line.same_as)
    policy = PolicyId(str(ghost.same_as))
    row = tables.policies[policy]
    tables.policies[policy] = structs.replace(row, state="quarantined")
    try:
        lines = standings(league)["player"]
    finally:
        tables.policies[policy] = row
    # It may lead, as its policy may not, so it is shown.
    assert next(line for line in lines if line.player == ghost.player).same_as is None


def test_a_ghost_whose_files_are_damaged_or_removed_is_in_no_standings(finished: World) -> None:
    tables, league = finished.state.tables, finished.state.league
    listed = {line.player for line in standings(league)["player"]}
    ghost = next(ghost for ghost in tables.ghosts.values() if ghost.is_present)
    assert ghost.player in listed
    for absent in (structs.replace(ghost, corrupt=True), structs.replace(ghost, doomed=True)):
        ghosts: Table[PlayerId, GhostRow] = Table(
            GHOSTS, {**tables.ghosts, ghost.player: absent}.values()
        )
        left = {line.player for line in standings(changed(league, ghosts=ghosts))["player"]}
        assert left == listed - {ghost.player}


def test_ratings_find_the_planted_skill(finished: World) -> None:
    lines = standings(finished.state.league)["player"]
    policies = [line for line in lines if line.kind == "policy" and line.rating is not None]
    assert len(policies) == 4
    inside = 0
    for line in policies:
        assert line.rating_low is not None
        assert line.rating_high is not None
        truth = finished.skills[line.weights or ""] + 400.0  # the bot's planted skill is -400
        inside += line.rating_low <= truth <= line.rating_high
    assert inside >= 3


def test_rank_intervals_hold_the_place_and_the_planted_rank(finished: World) -> None:
    lines = standings(finished.state.league)["player"]
    # Equal weights are one player.
    players = {line.weights or line.player: line for line in lines if line.rating is not None}
    # The bot's is -400.
    skills = {one: finished.skills.get(one, -400.0) for one in players}
    held = 0
    for one, line in players.items():
        assert line.rating is not None
        assert line.rank_low is not None
        assert line.rank_high is not None
        place = 1 + sum((other.rating or 0.0) > line.rating for other in players.values())
        assert 1 <= line.rank_low <= place <= line.rank_high <= len(players)
        rank = 1 + sum(skill > skills[one] for skill in skills.values())
        held += line.rank_low <= rank <= line.rank_high
    assert held >= 0.93 * len(players)
    # Whose weights were not in the last fit has none.
    unrated = [line for line in lines if line.rating is None]
    assert all((line.rank_low, line.rank_high) == (None, None) for line in unrated)


def test_fits_that_recorded_no_ranks_give_none(finished: World) -> None:
    row = finished.state.tables.ratings["player"]
    best = row.entrants[0]
    assert Ratings(row).ranks(best) == (row.rank_lows[0], row.rank_highs[0])
    assert Ratings(structs.replace(row, rank_lows=(), rank_highs=())).ranks(best) is None
    assert Ratings(row).ranks("missing") is None


def test_folding_the_rows_again_gives_the_same_league(finished: World) -> None:
    league = finished.state.league
    again = League(
        finished.state.tables,
        seats=league.seats,
        half_life_matches=finished.state.settings.config.payoffs.half_life_matches,
    )
    assert dict(again.payoff.records) == dict(league.payoff.records)
    assert again.results == league.results


def test_the_difference_of_two_players_uses_their_spread() -> None:
    row = make_ratings(
        entrants=(Entrant("a"), Entrant("b")),
        ratings=(100.0, 40.0),
        deviations=(np.sqrt(50.0), np.sqrt(40.0)),
        num_tallies=1,
    )
    spread = np.linalg.cholesky(np.array([[50.0, 30.0], [30.0, 40.0]]))
    # variance of the difference: 50 + 40 - 2 * 30 = 30
    mean, deviation = Ratings(row, spread).difference("a", "b") or (0.0, 0.0)
    assert mean == 60.0
    assert deviation == pytest.approx(np.sqrt(30.0))
    assert Ratings(row).difference("a", "b") == pytest.approx((60.0, np.sqrt(90.0)))
    assert Ratings(row).difference("a", "missing") is None
    assert Ratings(row).difference("a", "a") == Ratings(row, spread).difference("a", "a") == (0, 0)
    assert Ratings(row).interval("b") == pytest.approx(
        (40.0, 40.0 - Z95 * np.sqrt(40.0), 40.0 + Z95 * np.sqrt(40.0))
    )
    assert Ratings(None).interval("a") is None


@pytest.mark.slow
def test_two_populations_have_a_scale_each_with_its_own_zero() -> None:
    world = make_world(TAG, tag_spec(), joined=1)
    world.run()
    for name, lines in standings(world.state.league).items():
        bots = [line for line in lines if line.kind == "bot"]
        assert [bot.rating for bot in bots] == [0.0], name
        assert all(line.player.startswith((name, "bot:")) for line in lines)


def test_standing_weights_are_the_latest_evaluated_in_the_line(finished: World) -> None:
    state = finished.state
    for policy in state.tables.policies.values():
        assert policy.checkpoint is not None
        current = state.tables.checkpoints[policy.checkpoint].weights_digest
        standing = state.league.standing_weights(policy)
        assert standing is not None
        line: list[Digest] = [current, *state.league.ancestors(current)]
        newer = line[: line.index(standing)]
        assert not any(state.league.is_evaluated("player", digest) for digest in newer)


def test_a_champion_stands_without_its_luck_and_so_does_a_ghost_of_it(finished: World) -> None:
    state = finished.state
    row = state.tables.ratings["player"]
    assert any(line.kind == "ghost" for line in found(state.league, row, optimism=0.0))
    lucky, plain = (found(state.league, row, optimism=elo) for elo in (12.5, 0.0))
    best = champion(plain)
    assert best is not None
    reported = champion(lucky)
    assert reported is not None
    assert reported.player == best.player
    # In any order: who is lowered may stand behind others.
    after = {line.player: line for line in lucky}
    for line in plain:
        less = 12.5 if line.weights == best.weights else 0.0
        if line.rating is None or line.rating_low is None or line.rating_high is None:
            assert after[line.player] == line
            continue
        assert after[line.player] == line._replace(
            rating=line.rating - less,
            rating_low=line.rating_low - less,
            rating_high=line.rating_high - less,
        )
    rated = [line.rating for line in lucky if line.rating is not None]
    assert rated == sorted(rated, reverse=True)


def found(league: League, row: RatingsRow, *, optimism: float) -> list[Standing]:
    """Return the standings by a fit of some optimism."""
    ratings: Table[str, RatingsRow] = Table(RATINGS, [structs.replace(row, optimism=optimism)])
    assert row.champion is not None
    return standings(changed(league, ratings=ratings))["player"]


def changed(league: League, **tables: Any) -> League:
    """Return a league with the same results over some other tables."""
    other = copy.copy(league)
    other.tables = replace(league.tables, **tables)
    return other


def test_what_the_anchor_is_off_by_widens_intervals_and_changes_no_order(finished: World) -> None:
    known = finished.state.tables.ratings["player"]
    row = structs.replace(known, anchor_errors=(0.0,) * len(known.entrants))
    lines = standings(finished.state.league)["player"]
    best = champion(lines)
    assert best is not None
    place = row.entrants.index(Entrant(str(best.weights)))
    errors = [0.0] * len(row.entrants)
    errors[place] = 500.0
    unsure = structs.replace(row, anchor_errors=tuple(errors))
    ratings, off = Ratings(row), Ratings(unsure)
    rating, low, high = off.interval(row.entrants[place]) or (0.0, 0.0, 0.0)
    # sqrt(deviation^2 + 500^2)
    half = Z95 * math.hypot(row.deviations[place], 500.0)
    assert (rating - low, high - rating) == pytest.approx((half, half))
    assert off.low(best.weights) == ratings.low(best.weights)
    others = [one for index, one in enumerate(row.entrants) if index != place]
    assert [off.interval(one) for one in others] == [ratings.interval(one) for one in others]
    # Its lower bound is far below the others', and it is champion all the same.
    widened = champion(
        standings(changed(finished.state.league, ratings=Table(RATINGS, [unsure])))["player"]
    )
    assert widened is not None
    assert widened.player == best.player
    assert widened.rating_low == pytest.approx(low)
