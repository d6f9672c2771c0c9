"""Assignments fit a frame: too many opponents are refused at launch, the rest is left out."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from arena.codec import msgpack_bytes
from arena.environment_spec import EnvironmentSpec
from arena.errors import ConfigError, WireError
from arena.types import Digest, Player, PlayerId, Seating, WeightsRef
from arena.wire.messages import Evaluate, Pairing, Train
from populations.config.message_sizes import MAX_RESULT_BYTES, check_sendable, fitted, tally_bytes
from populations.records.rows import AssignmentRow, TallyRow
from tests.populations.controller.simulated import DUEL, make_world
from tests.populations.rows import make_evaluate, make_finished, make_spec, make_train

DIGEST = Digest("f" * 64)


def spec(num_agents: int) -> EnvironmentSpec:
    return make_spec("tests.many:env", tuple(f"player_{index}" for index in range(num_agents)))


def config(num_opponents: int) -> dict[str, object]:
    return {
        **DUEL,
        "environment": {"id": "tests.many:env", "num_envs": 8192},
        "matchmaking": {"opponents": num_opponents, "latest_ratio": 0.0},
    }


def test_more_opponents_than_fit_are_refused() -> None:
    num_agents, num_opponents = 8, 128
    with pytest.raises(ConfigError, match=r"matchmaking.opponents must be at most (\d+)") as caught:
        make_world(config(num_opponents), spec(num_agents))
    fits = int(str(caught.value).split("at most ")[1].split()[0])
    assert fits > num_opponents // 2
    world = make_world(config(fits), spec(num_agents), joined=1, steps=5)
    messages = [message for queue in world.given.values() for message in queue]
    assert any(isinstance(message, Train) and message.opponents for message in messages)
    for message in messages:
        check_sendable(message)


def many_sides(num_sides: int, *, populations: int = 1, **more: object) -> dict[str, object]:
    """A configuration of one agent on each side; each population has as many neighbours."""
    names = [f"player_{index}" for index in range(num_sides)]
    shares = [names[k::populations] for k in range(populations)]
    return {
        **DUEL,
        "environment": {"id": "tests.many:env", "num_envs": 64},
        "populations": {f"p{k}": {"agents": own, "size": 2} for k, own in enumerate(shares)},
        **more,
    }


@pytest.mark.parametrize(("num_sides", "populations"), [(22, 1), (200, 1), (300, 2), (40, 40)])
def test_assignments_of_hundreds_of_sides_fit_and_so_do_their_results(
    num_sides: int, populations: int
) -> None:
    world = make_world(many_sides(num_sides, populations=populations), spec(num_sides), joined=1)
    kinds: set[str] = set()
    # The first assignment of each policy makes its weights and plays nothing.
    while kinds != {"train", "evaluate"}:
        assert world.step()
        kinds = {row.kind for row in world.committed if isinstance(row, TallyRow)}
    rows = [row for row in world.committed if isinstance(row, AssignmentRow)]
    setup = world.state.settings.setup
    for row in rows:
        message = row.message
        assert message is not None
        check_sendable(message)
        if isinstance(message, Train):
            # There are no more opponents than environments.
            assert len(message.opponents) <= setup.num_envs
    tallies = [row.tally for row in world.committed if isinstance(row, TallyRow)]
    assert tallies
    for tally in tallies:
        players = [Player(player=PlayerId(entrant)) for entrant in tally.entrants]
        seated = [players[tally.entrants.index(entrant)] for entrant in tally.entrants]
        body = msgpack_bytes(make_finished(make_evaluate(pairings=()), tallies=(tally,)))
        assert len(body) <= tally_bytes(seated, setup.seats) <= MAX_RESULT_BYTES


def test_so_many_populations_that_no_result_can_be_sent_are_refused() -> None:
    with pytest.raises(
        ConfigError,
        match=r"populations must be fewer than 140 with 140 sides: the results of one seating take "
        r"\d+ bytes, and must fit 786432",
    ):
        make_world(many_sides(140, populations=140), spec(140))


def test_an_evaluation_asks_for_no_more_than_its_result_can_say() -> None:
    setup = make_world(many_sides(60, populations=60), spec(60)).state.settings.setup
    players = [
        Player(
            player=PlayerId(f"p{index}/p000@{index:012d}"),
            weights=WeightsRef(digest=DIGEST, key=f"populations/p{index}"),
        )
        for index in range(60)
    ]
    pairing = Pairing(seating=Seating(players=tuple(players)), num_matches=8)
    evaluation = make_evaluate(pairings=(pairing,) * 20, seed=7, games=8)
    one = tally_bytes(players, setup.seats)
    # 60 * 59 / 2 = 1770 results of two players.
    assert one > 1770 * 70
    kept = fitted(evaluation, setup=setup)
    assert isinstance(kept, Evaluate)
    assert 1 <= len(kept.pairings) <= MAX_RESULT_BYTES // one
    # Games do not fit beside the tallies of all pairings, but beside those of one.
    assert kept.games == 0
    alone = fitted(replace(evaluation, pairings=(pairing,)), setup=setup)
    assert isinstance(alone, Evaluate)
    assert alone.games == 8


def seating(index: int, *, seats: int = 8) -> Seating:
    key = f"populations/player/p000/ghosts/{index:012d}-ffffffff"
    ghost = PlayerId(f"player/p000@{index:012d}")
    player = Player(player=ghost, weights=WeightsRef(digest=DIGEST, key=key))
    return Seating(players=(player,) * seats)


def test_what_does_not_fit_is_left_out_evenly_and_alike_each_time() -> None:
    setup = make_world(config(1), spec(8)).state.settings.setup
    train = make_train(
        opponents=tuple(seating(index) for index in range(1000)),
        carried=tuple(seating(index) for index in range(1000, 1200)),
        seed=7,
        may_stop_early=True,
    )
    with pytest.raises(WireError, match="bytes, more than"):
        check_sendable(train)
    kept = fitted(train, setup=setup)
    check_sendable(kept)
    assert isinstance(kept, Train)
    assert kept.carried == ()
    assert set(kept.opponents) < set(train.opponents)
    halves = Counter(int(one.players[0].player[-12:]) < 500 for one in kept.opponents)
    assert abs(halves[True] - halves[False]) < 0.2 * len(kept.opponents)
    assert fitted(train, setup=setup) == kept
    fewer = fitted(replace(train, opponents=train.opponents[:200]), setup=setup)
    assert isinstance(fewer, Train)
    assert fewer.opponents == train.opponents[:200]
    evaluation = make_evaluate(
        pairings=tuple(Pairing(seating=one, num_matches=8) for one in train.opponents[:700]), seed=7
    )
    check_sendable(fitted(evaluation, setup=setup))
