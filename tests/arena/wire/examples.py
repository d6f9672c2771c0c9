"""One example of each message, and a strategy for any."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from typing import Any, Union, get_args, get_origin

from hypothesis import strategies as st
from msgspec import Struct, structs

from arena.types import (
    MAX_AGENT_STEPS,
    MAX_GENERATION,
    MAX_UPDATES,
    AssignmentId,
    CheckpointRef,
    Digest,
    Entrant,
    LearnerId,
    PackageVersion,
    PairScore,
    Player,
    PlayerId,
    PolicyId,
    Seating,
    Tally,
    WeightsRef,
)
from arena.wire.messages import (
    PROTOCOL_VERSION,
    Acknowledge,
    Evaluate,
    Failed,
    Finished,
    Goodbye,
    Header,
    Heartbeat,
    Hello,
    InFlight,
    Message,
    Pairing,
    Published,
    Refuse,
    Stop,
    Train,
    Trainee,
    Welcome,
)

LEARNER = LearnerId("host-4711-0a1b2c3d")
RUN = "6f1c7b1e-2f0a-4a52-9c55-0d2f8f1b9a77"
POLICY = PolicyId("player/p003")
GHOST = PlayerId("player/p004@000000120000")
DIGEST = Digest("0123456789abcdef" * 4)
GHOST_WEIGHTS = WeightsRef(
    digest=DIGEST, key="populations/player/p004/ghosts/000000120000-01234567"
)
CHECKPOINT = CheckpointRef(
    digest=Digest("f" * 64), key="populations/player/p003/checkpoints/000000130000-ffffffff"
)
SEATING = Seating(
    players=(Player(player=PlayerId(POLICY)), Player(player=GHOST, weights=GHOST_WEIGHTS))
)
HEADER = Header(run=RUN, epoch=2, learner=LEARNER, sequence=17)
HELLO = Hello(
    learner=LEARNER,
    pid=4711,
    host="host.example",
    protocol=PROTOCOL_VERSION,
    arena_version="0.1.0",
    environment_digest=DIGEST,
    config_digest=DIGEST,
    device="cpu",
    slots=1,
    populations=("player",),
    store=DIGEST,
)
HEARTBEAT = Heartbeat(
    assignment_id=AssignmentId(12), attempt=1, progress=99, agent_steps=2048, rss_bytes=1 << 28
)
TRAIN = Train(
    assignment_id=AssignmentId(12),
    attempt=1,
    trainees=(
        Trainee(
            policy=POLICY,
            generation=2,
            agent_steps=120000,
            learner_updates=300,
            checkpoint=CHECKPOINT,
            donor=PolicyId("player/p001"),
            initial_weights=None,
            hyperparameters={"learning_rate": 0.0003, "num_epochs": 4, "entropy_coef": 0.0},
        ),
    ),
    opponents=(SEATING,) * 8,
    carried=(SEATING,),
    agent_steps=10000,
    episodes=3,
    episode_length=42.5,
    seed=2**62 + 1,
    may_stop_early=True,
)
FINISHED = Finished(
    assignment_id=AssignmentId(12),
    attempt=1,
    checkpoints=(Published(policy=POLICY, checkpoint=CHECKPOINT),),
    tallies=(
        Tally(
            entrants=(Entrant("player/p003#2"), Entrant(DIGEST)),
            matches=3,
            pairs=(
                PairScore(
                    first=0,
                    second=1,
                    wins=2,
                    draws=0,
                    losses=1,
                    score_sum=2.0,
                    square_sum=2.0,
                ),
            ),
            return_sum=(1.0, -1.0),
            return_sum_of_squares=(3.0, 3.0),
            length_sum=31,
            distinct=3,
        ),
    ),
    metrics={"train/loss": -0.25},
    duration_s=3.5,
    in_flight=(InFlight(entrants=(Entrant("player/p003#2"), Entrant(DIGEST)), num_envs=7),),
    dropped=(PolicyId("player/p001"),),
)
EXAMPLES: tuple[Message, ...] = (
    HELLO,
    HEARTBEAT,
    FINISHED,
    Failed(
        assignment_id=AssignmentId(12),
        attempt=2,
        kind="checkpoint",
        reason="weights.safetensors is truncated",
        policy=POLICY,
        key=GHOST_WEIGHTS.key,
    ),
    Goodbye(reason="SIGTERM"),
    Welcome(heartbeat_s=1.0),
    Refuse(reason="configuration differs"),
    TRAIN,
    Evaluate(
        assignment_id=AssignmentId(13),
        attempt=1,
        pairings=(Pairing(seating=SEATING, num_matches=64),),
        seed=5,
    ),
    Acknowledge(assignment_id=AssignmentId(12), attempt=1),
    Stop(grace_s=30.0),
)

PLAYERS = SEATING.players
ENTRANTS = FINISHED.tallies[0].entrants
# One seat of two hundred is another player's.
OF_MANY_SEATS: dict[str, Message] = {
    "train": structs.replace(
        TRAIN, opponents=(Seating(players=(PLAYERS[1],) * 3 + PLAYERS[:1] + (PLAYERS[1],) * 196),)
    ),
    "finished": structs.replace(
        FINISHED,
        tallies=(
            structs.replace(
                FINISHED.tallies[0],
                entrants=(ENTRANTS[1],) * 3 + ENTRANTS[:1] + (ENTRANTS[1],) * 196,
                pairs=(PairScore(first=0, second=3, wins=38, draws=0, losses=19),),
                return_sum=(-0.5,) * 3 + (1.0,) + (-0.5,) * 196,
                return_sum_of_squares=(3.0,) * 200,
            ),
        ),
        in_flight=(InFlight(entrants=ENTRANTS[1:] * 200, num_envs=7),),
    ),
}
"""Messages in which few players have many seats."""

_COUNTS = st.integers(0, 2**63 - 1)
_KEYS = st.sampled_from([CHECKPOINT.key, GHOST_WEIGHTS.key, "a", "a.b/c@d/..e"])
_DIGESTS = st.text("0123456789abcdef", min_size=64, max_size=64)
_POLICIES = st.sampled_from(["player/p003", "a_b2/p0000", "x/p123456789012"])
_TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
_FLOATS = st.floats(allow_nan=False, allow_infinity=False)
_BY_TYPE: dict[object, st.SearchStrategy[Any]] = {
    Digest: _DIGESTS,
    PolicyId: _POLICIES,
    PlayerId: st.sampled_from(
        [POLICY, GHOST, "bot:random", "bot:package.module:Class", "outsider:exports/champion"]
    ),
    Entrant: st.sampled_from(["player/p003#0", DIGEST, "bot:random", "outsider:exports/champion"]),
    LearnerId: st.sampled_from([LEARNER, "l", "a.b_c-d"]),
    PackageVersion: st.sampled_from(["2.13.0+cpu", "1!2.0.post1", "0"]),
    AssignmentId: _COUNTS,
    int: _COUNTS,
    float: _FLOATS,
    int | float: _FLOATS | st.integers(-(2**63), 2**64 - 1),
    str: _TEXT,
    bool: st.booleans(),
    bytes: st.binary(max_size=64),
}
_BY_NAME: dict[str, st.SearchStrategy[Any]] = {
    "generation": st.integers(0, MAX_GENERATION),
    "agent_steps": st.integers(0, MAX_AGENT_STEPS),
    "learner_updates": st.integers(0, MAX_UPDATES),
    "key": _KEYS,
    "kind": st.sampled_from(
        ["stopped", "making", "environment", "code", "message", "non_finite", "error"]
    ),
    "run": st.just(RUN),
}


def values(annotation: Any) -> st.SearchStrategy[Any]:
    """Any value that the wire must carry in a field of this type."""
    origin: object = get_origin(annotation)
    arguments = get_args(annotation)
    if annotation in _BY_TYPE:
        return _BY_TYPE[annotation]
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        return instances(annotation)
    if origin is tuple:
        return st.lists(values(arguments[0]), max_size=3).map(tuple)
    if origin is dict:
        return st.dictionaries(_TEXT, values(arguments[1]), max_size=3)
    unions: tuple[object, ...] = (Union, types.UnionType)
    assert origin in unions, annotation
    return st.none() | values(arguments[0])


def instances(kind: type[Any]) -> st.SearchStrategy[Any]:
    """Any instance of a Struct of the wire."""
    hints = typing.get_type_hints(kind)
    fields: dict[str, st.SearchStrategy[Any]] = {}
    for name, hint in hints.items():
        if name in _BY_NAME:
            optional = type(None) in get_args(hint)
            fields[name] = st.none() | _BY_NAME[name] if optional else _BY_NAME[name]
        elif hint is float and name.endswith("_s"):
            fields[name] = st.floats(0, 1e300)
        else:
            fields[name] = values(hint)
    build: Callable[..., Any] = kind
    return st.builds(build, **fields)
