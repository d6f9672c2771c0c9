"""Policies as selection sees them, from records and ratings."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from arena.types import PolicyId
from populations.controller.evolution.members import (
    common_scores,
    is_reference,
    members_of,
    rating_difference,
    standing_weights_of,
)
from tests.populations.controller.eager import transaction
from tests.populations.controller.simulated import (
    DUEL,
    DUET,
    World,
    duet_spec,
    made_once,
    make_world,
)


@made_once
def played() -> World:
    return make_world({**DUEL, "pbt": {"exploit": "none"}}, joined=1, steps=40)


def test_a_member_has_the_figures_of_its_standing_weights() -> None:
    world = played()
    state = world.state
    ratings = state.fits.ratings("player")
    for member in members_of(state.settings.config, state.indexes, "player", role="main"):
        digest = standing_weights_of(state.fits, state.tables.policies[member.policy])
        assert digest is not None
        record = state.league.record("player", digest)
        assert member.rating == ratings.rating(digest)
        assert member.num_returns == record.matches
        if record.matches > 1:
            mean = record.return_sum / record.matches
            assert member.return_mean == pytest.approx(mean)
            squares = record.return_sum_of_squares - record.matches * mean**2
            variance = max(squares / (record.matches - 1), 0.0)
            assert member.return_variance == pytest.approx(variance, abs=1e-9)


def test_a_quarantined_policy_is_no_member() -> None:
    world = played()
    name = PolicyId("player/p001")
    before = {
        member.policy
        for member in members_of(
            world.state.settings.config, world.state.indexes, "player", role="main"
        )
    }
    transaction(world).put(replace(world.state.tables.policies[name], state="quarantined"))
    after = {
        member.policy
        for member in members_of(
            world.state.settings.config, world.state.indexes, "player", role="main"
        )
    }
    assert before - after == {name}
    assert (
        members_of(
            world.state.settings.config, world.state.indexes, "player", role="league_exploiter"
        )
        == []
    )


def test_differences_are_turned_round_with_their_policies() -> None:
    world = played()
    difference = rating_difference(world.state.fits, "player")
    first, second = (PolicyId(f"player/p00{number}") for number in (0, 1))
    one, other = difference(first, second), difference(second, first)
    assert one is not None
    assert other is not None
    assert one[0] == pytest.approx(-other[0])
    assert one[1] == pytest.approx(other[1])


def test_common_scores_are_of_as_many_matches_for_both() -> None:
    world = played()
    common = common_scores(world.state.fits, "player")
    assert common is not None
    found = [
        scores
        for first in world.state.tables.policies
        for second in world.state.tables.policies
        if (scores := common(first, second)) is not None
    ]
    assert found
    assert all(0.0 <= score.points <= score.matches for pair in found for score in pair)


def test_without_opponents_there_are_no_common_ones() -> None:
    assert common_scores(make_world(DUET, duet_spec()).state.fits, "speaker") is None


def test_the_reference_is_the_first_policy_where_there_is_one() -> None:
    for reference in (True, False):
        world = make_world({**DUEL, "pbt": {"reference": reference}})
        found = [
            is_reference(world.state.settings.config, row)
            for row in world.state.tables.policies.values()
        ]
        assert found == [reference, False, False, False]
