"""The pool of an evaluation: each weights once, with its arrays in one order."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from arena.types import RANDOM_BOT, PlayerId, PolicyId
from populations.controller.evaluation.contenders import evaluation_pool
from tests.populations.controller.eager import transaction
from tests.populations.controller.simulated import World, made_once, make_world


@made_once
def played() -> World:
    return make_world(joined=1, steps=30)


def test_policies_ghosts_and_bots_are_there_each_weights_once() -> None:
    world = played()
    pool = evaluation_pool(
        world.state.settings, world.state.indexes, world.state.blame.ledger, None
    )
    entrants = [(one.population, one.entrant) for one in pool.players]
    assert len(set(entrants)) == len(entrants)
    assert {one.kind for one in pool.players} == {"policy", "ghost", "bot"}
    assert [one.player.player for one in pool.players if one.kind == "bot"] == [RANDOM_BOT]
    active = [row for row in world.state.tables.policies.values() if row.state == "active"]
    assert [one.player.player for one in pool.players if one.kind == "policy"] == [
        PlayerId(row.policy) for row in active
    ]


def test_arrays_are_in_the_order_of_the_players() -> None:
    state = played().state
    pool = evaluation_pool(state.settings, state.indexes, state.blame.ledger, None)
    assert pool.field.ratings.tolist() == [one.rating for one in pool.players]
    assert pool.field.own_variance.tolist() == [one.own_variance for one in pool.players]
    assert pool.field.is_ranked.tolist() == [one.kind == "policy" for one in pool.players]
    assert pool.field.is_eligible.tolist() == [one.kind != "bot" for one in pool.players]


def test_a_quarantined_policy_is_not_played() -> None:
    world = played()
    name = PolicyId("player/p001")
    tx = transaction(world)
    tx.put(replace(world.state.tables.policies[name], state="quarantined"))
    players = {
        one.player.player
        for one in evaluation_pool(
            world.state.settings, world.state.indexes, world.state.blame.ledger, None
        ).players
    }
    assert PlayerId(name) not in players


def test_deviations_are_from_the_mean_of_the_policies() -> None:
    state = played().state
    pool = evaluation_pool(state.settings, state.indexes, state.blame.ledger, None)
    centred = pool.field.centred_spread()
    by_hand = np.sqrt((centred**2).sum(axis=1) + pool.field.own_variance)
    assert np.allclose(pool.deviations(), by_hand)
    assert (pool.deviations() > 0.0).all()
