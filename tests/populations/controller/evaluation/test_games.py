"""Games of evaluations are kept within their bound, and a champion's defeats keep weights."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from arena.types import (
    MAX_GAME_BYTES,
    MAX_GAMES,
    MAX_GAMES_BYTES,
    RANDOM_BOT,
    Entrant,
    Game,
    PlayerId,
    PolicyId,
)
from arena.wire.messages import Evaluate, Finished
from populations.controller.assignments.validation import GivenAssignment, find_inconsistency
from populations.controller.evaluation import games
from populations.controller.evaluation.pairings import evaluation_pool
from populations.controller.state.events import Now
from populations.records.games import MAX_HELD, defeats
from populations.records.rows import AssignmentRow
from tests.populations.controller.eager import transaction
from tests.populations.controller.simulated import DUEL, World, fold, made_once, make_world

KEEP = 40


@pytest.fixture(scope="module")
def world() -> World:
    """Return a league that has kept many more games than may stay."""
    made = make_world(
        {
            **DUEL,
            "replays": {"keep": KEEP},
            "evaluation": {"share": 0.3},
            "checkpoints": {"keep": 1},
            "stop": {"agent_steps_per_policy": 12_000},
        },
        joined=2,
    )
    while not made.over and made.now_s < 1e6:
        made.step()
        assert len(made.state.tables.games) <= KEEP
        _check_held(made)
        if made.state.phase.name != "training":
            break
    return made


def _check_held(world: World) -> None:
    """All that a game keeps is there, for no more games than may keep weights."""
    tables = world.state.tables
    held = [game for game in tables.games.values() if game.holds]
    assert len(held) <= MAX_HELD
    for game in held:
        for player, key in zip(game.players, game.keys, strict=True):
            ghost, checkpoint = tables.ghosts.get(PlayerId(player)), tables.checkpoints.get(key)
            assert (
                not key
                or (ghost is not None and ghost.key == key and ghost.is_present)
                or (checkpoint is not None and checkpoint.state == "present")
            )


def test_the_bound_holds_and_the_newest_are_there(world: World) -> None:
    found = list(world.state.tables.games.values())
    assert KEEP - KEEP // games.SLACK <= len(found) <= KEEP
    newest = max(
        row.assignment_id
        for row in world.committed
        if isinstance(row, AssignmentRow) and row.kind == "evaluate" and row.status == "finished"
    )
    assert found[-1].game.startswith(f"{newest}.")


def test_the_journal_has_the_games_that_memory_has(world: World) -> None:
    assert fold(world.committed).games == world.state.tables.games


def test_defeats_of_the_champion_hold_weights_that_nothing_else_needs(world: World) -> None:
    rated = world.state.tables.ratings["player"]
    assert rated.champion is not None
    lost = defeats(
        world.state.tables.games.values(), rated.champion, seats=world.state.settings.setup.seats
    )
    held = [game for game in world.state.tables.games.values() if game.holds]
    assert held, "the champion has lost no game whose weights were there"
    assert set(held) <= set(lost)
    keys = {key for game in held for key in game.keys if key}
    assert all(world.state.indexes.retention.needs(key) for key in keys)
    # Games that another champion lost do not count.
    tx = world.state.begin(Now(monotonic_s=world.now_s, utc=""))
    for row in list(world.state.tables.ratings.values()):
        tx.put(replace(row, champion=None))
    games.hold(world.state.settings, tx)
    assert not any(game.holds for game in world.state.tables.games.values())
    tx.put(rated)
    games.hold(world.state.settings, tx)
    assert {game.game for game in world.state.tables.games.values() if game.holds} <= {
        game.game for game in lost
    }


@pytest.mark.parametrize(("pool", "held"), [(16, 4), (None, MAX_HELD)])
def test_defeats_hold_a_quarter_of_a_small_pool_at_most(pool: int | None, held: int) -> None:
    made = make_world(
        {
            **DUEL,
            "ghosts": {"every_agent_steps": 1000, "keep": pool},
            "evaluation": {"share": 0.3},
        },
        joined=2,
    )
    state = made.state
    while not (state.tables.ratings and state.tables.games):
        made.step()
    known = next(iter(state.tables.games.values()))
    tx = state.begin(Now(monotonic_s=made.now_s, utc=""))
    champion = Entrant("c" * 64)
    for rated in list(state.tables.ratings.values()):
        tx.put(replace(rated, champion=champion))
    # Bots have no weights that could be removed.
    lost = replace(
        known,
        seats=(0, 1),
        players=(PlayerId(RANDOM_BOT),) * 2,
        entrants=(champion, Entrant(RANDOM_BOT)),
        keys=("", ""),
        points=(0.0, 1.0),
    )
    names = [f"{10**6}.{number}" for number in range(3 * MAX_HELD)]
    for name in names:
        tx.put(replace(lost, game=name))
    games.hold(state.settings, tx)
    assert [game.game for game in state.tables.games.values() if game.holds] == names[-held:]


def test_evaluations_ask_for_no_game_where_none_are_kept() -> None:
    made = make_world({**DUEL, "replays": {"keep": 0}, "evaluation": {"share": 0.3}}, joined=1)
    while made.now_s < 1e5 and not made.state.tables.run.evaluation_assignments:
        made.step()
    asked = [row.message for row in made.committed if isinstance(row, AssignmentRow)]
    assert {message.games for message in asked if isinstance(message, Evaluate)} == {0}
    assert not made.state.tables.games


# ---- reports that are refused


@pytest.fixture(scope="module")
def asked(world: World) -> tuple[GivenAssignment, Finished]:
    row = next(
        row
        for row in world.committed
        if isinstance(row, AssignmentRow) and isinstance(row.message, Evaluate)
    )
    finished, _ = world.learner.carry_out(row.message)
    question = GivenAssignment(
        message=row.message, setup=world.state.settings.setup, waited_s=9e9, up_s=9e9
    )
    assert find_inconsistency(question, finished, manifests={}) is None
    assert finished.games
    return question, finished


def changed(game: Game, **fields: object) -> Game:
    return replace(game, **fields)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"pairing": 999}, "a game is of pairing 999"),
        ({"seats": (0,)}, "a game has the seats (0,)"),
        ({"seats": (1, 0)}, "a game has the seats (1, 0)"),
        ({"points": (1.0,)}, "a game has 1 points"),
        ({"returns": ()}, "and 0 returns"),
        ({"returns": (1e300, 0.0)}, "a game has the returns"),
        ({"steps": 0, "shown": bytes(4)}, "a game of 0 steps"),
        ({"steps": 19}, "a game of 19 steps has 24 bytes"),
        ({"actions": bytes(MAX_GAME_BYTES)}, f"a game has {MAX_GAME_BYTES + 24} bytes"),
    ],
)
def test_a_game_that_cannot_be_is_refused(
    asked: tuple[GivenAssignment, Finished], fields: dict[str, object], says: str
) -> None:
    question, finished = asked
    forged = replace(finished, games=(changed(finished.games[0], **fields),))
    fault = find_inconsistency(question, forged, manifests={})
    assert fault is not None
    assert says in fault


def test_too_many_or_too_large_games_are_refused(asked: tuple[GivenAssignment, Finished]) -> None:
    question, finished = asked
    many = replace(finished, games=finished.games[:1] * (MAX_GAMES + 1))
    fault = find_inconsistency(question, many, manifests={})
    assert fault == f"it has {MAX_GAMES + 1} games, and was asked for {MAX_GAMES} at most"
    large = changed(finished.games[0], actions=bytes(MAX_GAME_BYTES - 24))
    some = replace(finished, games=(large,) * 5)
    fault = find_inconsistency(question, some, manifests={})
    assert fault == f"its games have {5 * MAX_GAME_BYTES} bytes, more than {MAX_GAMES_BYTES}"


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
