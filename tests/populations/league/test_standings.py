"""Standings, champion and ratings of a simulated league whose true skills are known."""

from __future__ import annotations

import copy
import dataclasses
import math
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from msgspec import structs

from arena.types import Digest, Entrant, PlayerId, PolicyId
from populations.choices import number_of
from populations.league.league import League
from populations.league.ratings import Ratings, interval_fields
from populations.league.standings import (
    Holders,
    Standing,
    champion,
    champion_of,
    name_of,
    next_champion,
    standings,
    with_title_of,
)
from populations.ratings.model import Z95
from populations.records.rows import GhostRow, PolicyRow, RatingsRow
from populations.records.tables import GHOSTS, RATINGS, Table
from tests.populations.controller.simulated import DUEL, TAG, World, make_world, tag_spec
from tests.populations.payoffs import records
from tests.populations.rows import make_ghost, make_policy, make_ratings


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
    # The ghost may lead, unlike its policy, so it is shown.
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
    # Players with equal weights are one player.
    players = {line.weights or line.player: line for line in lines if line.rating is not None}
    # The bot's skill is -400.
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
    # A player whose weights were not in the last fit has no rank.
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
    assert records(again.payoff) == records(league.payoff)
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
    # The order does not matter: a player that is lowered may stand behind others.
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
    other.tables = dataclasses.replace(league.tables, **tables)
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
    # Its lower bound is far below the others', but it is still champion.
    widened = champion(
        standings(changed(finished.state.league, ratings=Table(RATINGS, [unsure])))["player"]
    )
    assert widened is not None
    assert widened.player == best.player
    assert widened.rating_low == pytest.approx(low)


NOBODY = cast(Any, SimpleNamespace(checkpoints={}))
"""A league that knows no origins."""

A, B, C = Entrant("a"), Entrant("b"), Entrant("c")


def rated(
    champion: Entrant | None = None, *, since: int = 0, **known: tuple[float, float]
) -> Ratings:
    """Independent ratings with their deviations."""
    row = make_ratings(
        entrants=tuple(Entrant(name) for name in known),
        ratings=tuple(rating for rating, _ in known.values()),
        deviations=tuple(deviation for _, deviation in known.values()),
        num_tallies=1,
        champion=champion,
        champion_agent_steps=since,
    )
    return Ratings(row, np.diag(row.deviations))


def policy(name: PolicyId, *, agent_steps: int) -> PolicyRow:
    return make_policy(name, population="player", index=0, agent_steps=agent_steps)


def ghost(name: PolicyId, *, agent_steps: int) -> GhostRow:
    return make_ghost(name, agent_steps, population="player", weights_digest=Digest("w"))


def ghosts(**agent_steps: int) -> Holders:
    """A ghost with each of some weights."""
    return {
        Entrant(name): [ghost(PolicyId("p"), agent_steps=steps)]
        for name, steps in agent_steps.items()
    }


def test_the_first_title_goes_to_the_best_lower_bound_of_those_who_may_have_it() -> None:
    ratings = rated(a=(500.0, 10.0), b=(600.0, 200.0), c=(900.0, 10.0))
    both = ghosts(a=1, b=2)
    assert next_champion(ratings, both, NOBODY, agent_steps=7, is_over=False) == (A, 7)
    assert champion_of(ratings, both, NOBODY) == A
    assert next_champion(ratings, {}, NOBODY, agent_steps=7, is_over=False) is None
    assert next_champion(Ratings(None), both, NOBODY, agent_steps=7, is_over=False) is None
    assert champion_of(Ratings(None), both, NOBODY) is None


def test_it_changes_once_the_lead_is_likely_and_a_fifth_more_was_trained() -> None:
    players = ghosts(a=100, b=200)
    # A lead of 20 with a deviation of sqrt(2) 10 has probability 0.92; a lead of 15 has 0.86.
    likely = rated(A, since=1000, a=(500.0, 10.0), b=(520.0, 10.0))
    unlikely = rated(A, since=1000, a=(500.0, 10.0), b=(515.0, 10.0))
    assert next_champion(likely, players, NOBODY, agent_steps=1199, is_over=False) == (A, 1000)
    assert next_champion(likely, players, NOBODY, agent_steps=1200, is_over=False) == (B, 1200)
    assert next_champion(unlikely, players, NOBODY, agent_steps=9000, is_over=False) == (A, 1000)
    # Readers see the stored champion, independent of the bounds.
    assert champion_of(likely, players, NOBODY) == A


def test_who_is_gone_has_no_title() -> None:
    ratings = rated(C, since=1000, a=(500.0, 10.0), b=(490.0, 10.0), c=(900.0, 10.0))
    assert champion_of(ratings, ghosts(a=1, b=2), NOBODY) == A
    assert next_champion(ratings, ghosts(a=1, b=2), NOBODY, agent_steps=1001, is_over=False) == (
        A,
        1001,
    )


def test_a_policy_that_trains_on_keeps_the_title() -> None:
    # The weights a belong to no player any more; the title moves to b, which is not surely
    # different.
    known = rated(A, since=1000, a=(500.0, 10.0), b=(505.0, 30.0), c=(510.0, 10.0))
    players = {**ghosts(c=3), B: [policy(PolicyId("p"), agent_steps=9)]}

    def after(maker: str) -> object:
        origins = {Digest("a"): SimpleNamespace(policy=PolicyId(maker))}
        league = cast(Any, SimpleNamespace(checkpoints=origins))
        found = next_champion(known, players, league, agent_steps=1001, is_over=False)
        assert found is not None
        # Readers of the row before the next fit see the same.
        assert champion_of(known, players, league) == found[0]
        return found

    assert after("p") == (B, 1000)
    # A policy without any player left loses the title.
    assert after("gone") == (C, 1001)


def test_a_policy_takes_the_title_along_though_a_ghost_has_the_weights_that_it_was_given_for() -> (
    None
):
    p, q = PolicyId("p"), PolicyId("q")
    players = {**ghosts(a=3), B: [policy(p, agent_steps=9)]}

    def after(gain: float, *, maker: PolicyId = p) -> object:
        # The lead is the gain, with a deviation of sqrt(2) 10.
        known = rated(A, since=1000, a=(500.0, 10.0), b=(500.0 + gain, 10.0))
        origins = {
            Digest("a"): SimpleNamespace(policy=p),
            Digest("b"): SimpleNamespace(policy=maker),
        }
        league = cast(Any, SimpleNamespace(checkpoints=origins))
        return next_champion(known, players, league, agent_steps=1001, is_over=False)

    # "Likely worse" is a probability of 0.9, or 18 Elo.
    assert after(5.0) == after(-15.0) == (B, 1000)
    assert after(-20.0) == (A, 1000)
    # Weights copied since then belong to another policy, and do not get the title.
    assert after(5.0, maker=q) == (A, 1000)


def test_at_the_end_the_longest_trained_of_equals_has_it() -> None:
    ratings = rated(A, since=1000, a=(500.0, 10.0), b=(495.0, 10.0), c=(489.0, 10.0))
    players = ghosts(a=100, b=200, c=300)
    assert next_champion(ratings, players, NOBODY, agent_steps=1001, is_over=True) == (B, 1001)
    # The champion keeps the title at the next fit.
    again = rated(B, since=1001, a=(500.0, 10.0), b=(495.0, 10.0), c=(489.0, 10.0))
    assert next_champion(again, players, NOBODY, agent_steps=1001, is_over=True) == (B, 1001)


def test_the_row_of_a_fit_takes_the_title_over() -> None:
    before, after = rated(A, since=5, a=(1.0, 1.0)).row, rated(a=(2.0, 1.0)).row
    assert before is not None
    assert after is not None
    before = structs.replace(before, champion_player=PlayerId("player/p1"))
    expected = structs.replace(
        after, champion=A, champion_agent_steps=5, champion_player=before.champion_player
    )
    assert with_title_of(after, before) == expected


def test_weights_go_by_the_name_of_the_policy_that_trained_them() -> None:
    maker, copier = PolicyId("player/p1"), PolicyId("player/p2")
    league = cast(Any, SimpleNamespace(checkpoints={Digest("a"): SimpleNamespace(policy=maker)}))
    own, kept = policy(maker, agent_steps=10), ghost(maker, agent_steps=10)
    copy = policy(copier, agent_steps=99)
    assert name_of([copy, kept, own], league, A) == "player/p1"
    # The policy has trained on, so the title stays with its ghost, not with a policy that has just
    # copied it.
    assert name_of([copy, kept], league, A) == kept.player
    assert name_of([copy], league, A) == "player/p2"


def test_an_interval_without_an_upper_bound_is_open_and_its_other_numbers_stay() -> None:
    ratings = rated(a=(500.0, 10.0), b=(400.0, 10.0))
    assert ratings.row is not None
    known = Ratings(structs.replace(ratings.row, open=(A,)))
    assert known.interval(A) == (500.0, 500.0 - Z95 * 10.0, math.inf)
    assert known.interval(B) == ratings.interval(B)
    assert interval_fields(known.interval(A)) == {
        "rating": 500.0,
        "rating_low": 500.0 - Z95 * 10.0,
        "rating_high": None,
        "open": True,
    }
    assert interval_fields(None) == {
        "rating": None,
        "rating_low": None,
        "rating_high": None,
        "open": False,
    }


def test_the_champions_rating_is_less_its_luck_wherever_it_is_read() -> None:
    ratings = rated(A, a=(500.0, 10.0), b=(400.0, 10.0))
    assert ratings.row is not None
    lucky = Ratings(structs.replace(ratings.row, optimism=25.0), ratings.spread)
    assert lucky.rating(A) == 475.0
    assert lucky.rating(B) == 400.0
    # The optimism does not change decisions.
    assert lucky.difference(A, B) == ratings.difference(A, B)
    assert lucky.low(A) == ratings.low(A)
