"""Assignments fit a frame: too many opponents are refused at launch, the rest is left out."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from arena.environment_spec import AgentSpec, EnvironmentSpec
from arena.errors import ConfigError, WireError
from arena.types import AssignmentId, Digest, Player, PlayerId, Seating, WeightsRef
from arena.wire.messages import Evaluate, Pairing, Train
from populations.config.message_sizes import check_sendable, fitted
from tests.populations.controller.simulated import BOX, DISCRETE, DUEL, make_world

DIGEST = Digest("f" * 64)


def spec(num_agents: int) -> EnvironmentSpec:
    agent = AgentSpec(observation=BOX, action=DISCRETE, mask=None)
    names = tuple(f"player_{index}" for index in range(num_agents))
    return EnvironmentSpec(
        id="tests.many:env",
        kwargs={},
        api="aec",
        agents=names,
        agent_specs=dict.fromkeys(names, agent),
    )


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
    world = make_world(config(fits), spec(num_agents))
    world.join()
    for _ in range(5):
        world.step()
    messages = [message for queue in world.given.values() for message in queue]
    assert any(isinstance(message, Train) and message.opponents for message in messages)
    for message in messages:
        check_sendable(message)


def seating(index: int, *, seats: int = 8) -> Seating:
    key = f"populations/player/p000/ghosts/{index:012d}-ffffffff"
    ghost = PlayerId(f"player/p000@{index:012d}")
    player = Player(player=ghost, weights=WeightsRef(digest=DIGEST, key=key))
    return Seating(players=(player,) * seats)


def test_what_does_not_fit_is_left_out_evenly_and_alike_each_time() -> None:
    train = Train(
        assignment_id=AssignmentId(1),
        attempt=0,
        trainees=(),
        opponents=tuple(seating(index) for index in range(1000)),
        carried=tuple(seating(index) for index in range(1000, 1200)),
        agent_steps=1,
        seed=7,
        may_stop_early=True,
    )
    with pytest.raises(WireError, match="bytes, more than"):
        check_sendable(train)
    kept = fitted(train)
    check_sendable(kept)
    assert isinstance(kept, Train)
    assert kept.carried == ()
    assert set(kept.opponents) < set(train.opponents)
    halves = Counter(int(one.players[0].player[-12:]) < 500 for one in kept.opponents)
    assert abs(halves[True] - halves[False]) < 0.2 * len(kept.opponents)
    assert fitted(train) == kept
    fewer = fitted(replace(train, opponents=train.opponents[:200]))
    assert isinstance(fewer, Train)
    assert fewer.opponents == train.opponents[:200]
    evaluation = Evaluate(
        assignment_id=AssignmentId(1),
        attempt=0,
        pairings=tuple(Pairing(seating=one, num_matches=8) for one in train.opponents[:700]),
        seed=7,
    )
    check_sendable(fitted(evaluation))
