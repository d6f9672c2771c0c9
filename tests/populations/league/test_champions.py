"""The title of a champion: when it changes, and by whose name weights go."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from msgspec.structs import replace

from arena.types import Digest, Entrant, PlayerId, PolicyId, ghost_id
from populations.league.champions import (
    Holders,
    champion_of,
    name_of,
    next_champion,
    with_title_of,
)
from populations.league.ratings import Ratings, interval_fields
from populations.ratings.model import Z95
from populations.records.rows import GhostRow, PolicyRow
from tests.populations.rows import make_ratings

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
    return PolicyRow(
        policy=name, population="player", index=0, agent_steps=agent_steps, hyperparameters={}
    )


def ghost(name: PolicyId, *, agent_steps: int) -> GhostRow:
    return GhostRow(
        player=ghost_id(name, agent_steps=agent_steps),
        policy=name,
        population="player",
        agent_steps=agent_steps,
        generation=0,
        weights_digest=Digest("w"),
        key="",
        checkpoint="",
    )


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
    # Ahead by 20 with a deviation of sqrt(2) 10: probability 0.92; by 15: 0.86.
    likely = rated(A, since=1000, a=(500.0, 10.0), b=(520.0, 10.0))
    unlikely = rated(A, since=1000, a=(500.0, 10.0), b=(515.0, 10.0))
    assert next_champion(likely, players, NOBODY, agent_steps=1199, is_over=False) == (A, 1000)
    assert next_champion(likely, players, NOBODY, agent_steps=1200, is_over=False) == (B, 1200)
    assert next_champion(unlikely, players, NOBODY, agent_steps=9000, is_over=False) == (A, 1000)
    # Readers see who has it, whatever bounds say.
    assert champion_of(likely, players, NOBODY) == A


def test_who_is_gone_has_no_title() -> None:
    ratings = rated(C, since=1000, a=(500.0, 10.0), b=(490.0, 10.0), c=(900.0, 10.0))
    assert champion_of(ratings, ghosts(a=1, b=2), NOBODY) == A
    assert next_champion(ratings, ghosts(a=1, b=2), NOBODY, agent_steps=1001, is_over=False) == (
        A,
        1001,
    )


def test_a_policy_that_trains_on_keeps_the_title() -> None:
    # Its weights a are no player's any more; it stands by b, which is not surely better or worse.
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
    # Of another policy nobody is left.
    assert after("gone") == (C, 1001)


def test_a_policy_takes_the_title_along_though_a_ghost_has_the_weights_that_it_was_given_for() -> (
    None
):
    p, q = PolicyId("p"), PolicyId("q")
    players = {**ghosts(a=3), B: [policy(p, agent_steps=9)]}

    def after(gain: float, *, maker: PolicyId = p) -> object:
        # Better by the gain with a deviation of sqrt(2) 10.
        known = rated(A, since=1000, a=(500.0, 10.0), b=(500.0 + gain, 10.0))
        origins = {
            Digest("a"): SimpleNamespace(policy=p),
            Digest("b"): SimpleNamespace(policy=maker),
        }
        league = cast(Any, SimpleNamespace(checkpoints=origins))
        return next_champion(known, players, league, agent_steps=1001, is_over=False)

    # Likely worse is a probability of 0.9, 18 Elo.
    assert after(5.0) == after(-15.0) == (B, 1000)
    assert after(-20.0) == (A, 1000)
    # What it has copied since is another's title.
    assert after(5.0, maker=q) == (A, 1000)


def test_at_the_end_the_longest_trained_of_equals_has_it() -> None:
    ratings = rated(A, since=1000, a=(500.0, 10.0), b=(495.0, 10.0), c=(489.0, 10.0))
    players = ghosts(a=100, b=200, c=300)
    assert next_champion(ratings, players, NOBODY, agent_steps=1001, is_over=True) == (B, 1001)
    # It keeps it at the next fit.
    again = rated(B, since=1001, a=(500.0, 10.0), b=(495.0, 10.0), c=(489.0, 10.0))
    assert next_champion(again, players, NOBODY, agent_steps=1001, is_over=True) == (B, 1001)


def test_the_row_of_a_fit_takes_the_title_over() -> None:
    before, after = rated(A, since=5, a=(1.0, 1.0)).row, rated(a=(2.0, 1.0)).row
    assert before is not None
    assert after is not None
    before = replace(before, champion_player=PlayerId("player/p1"))
    expected = replace(
        after, champion=A, champion_agent_steps=5, champion_player=before.champion_player
    )
    assert with_title_of(after, before) == expected


def test_weights_go_by_the_name_of_the_policy_that_trained_them() -> None:
    maker, copier = PolicyId("player/p1"), PolicyId("player/p2")
    league = cast(Any, SimpleNamespace(checkpoints={Digest("a"): SimpleNamespace(policy=maker)}))
    own, kept = policy(maker, agent_steps=10), ghost(maker, agent_steps=10)
    copy = policy(copier, agent_steps=99)
    assert name_of([copy, kept, own], league, A) == "player/p1"
    # It has trained on since: its ghost, and not who has just copied it.
    assert name_of([copy, kept], league, A) == kept.player
    assert name_of([copy], league, A) == "player/p2"


def test_an_interval_without_an_upper_bound_is_open_and_its_other_numbers_stay() -> None:
    ratings = rated(a=(500.0, 10.0), b=(400.0, 10.0))
    assert ratings.row is not None
    known = Ratings(replace(ratings.row, open=(A,)))
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
    lucky = Ratings(replace(ratings.row, optimism=25.0), ratings.spread)
    assert lucky.rating(A) == 475.0
    assert lucky.rating(B) == 400.0
    # It decides nothing.
    assert lucky.difference(A, B) == ratings.difference(A, B)
    assert lucky.low(A) == ratings.low(A)
