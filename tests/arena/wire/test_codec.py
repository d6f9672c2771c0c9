from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from arena.codec import MAX_CONTAINERS
from arena.errors import DecodeError, VersionMismatch, WireError
from arena.types import LearnerId, PolicyId
from arena.wire.codec import KINDS, MAX_FRAME_BYTES, decode, encode
from arena.wire.messages import Goodbye, Header, Message, Train, Welcome
from tests.arena.wire.examples import (
    EXAMPLES,
    FINISHED,
    HEADER,
    OF_MANY_SEATS,
    TRAIN,
)
from tests.instances import instances

ASSETS = Path(__file__).parents[2] / "assets"
GOLDEN = ASSETS / "wire_v3"
OLDER = [
    (number, path) for number in (1, 2) for path in sorted((ASSETS / f"wire_v{number}").iterdir())
]
NUMBER_OF = {kind: number for number, kind in KINDS.items()}


def name_of(message: Message) -> str:
    return type(message).__name__.lower()


def frames_with(body: object, *, kind: type[Message] = Train) -> list[bytes]:
    raw = body if isinstance(body, bytes) else msgpack.packb(body)
    frames = encode(HEADER, Goodbye(reason=""))
    return [frames[0], bytes([frames[1][0], NUMBER_OF[kind]]), frames[2], raw]


def body_of(message: Message) -> dict[str, Any]:
    body = msgpack.unpackb(encode(HEADER, message)[3])
    assert isinstance(body, dict)
    return body


def test_there_is_an_example_of_every_message() -> None:
    assert {type(message) for message in EXAMPLES} == set(KINDS.values())


@pytest.mark.parametrize("message", EXAMPLES, ids=name_of)
def test_frames_are_those_of_version_3_for_ever(message: Message) -> None:
    golden = list(map(bytes.fromhex, (GOLDEN / f"{name_of(message)}.hex").read_text().split()))
    assert encode(HEADER, message) == golden
    assert decode(golden) == (HEADER, message)


@pytest.mark.parametrize("name", OF_MANY_SEATS)
def test_players_of_many_seats_are_sent_once_with_their_places(name: str) -> None:
    message = OF_MANY_SEATS[name]
    path = GOLDEN / f"{name}_of_many_seats.hex"
    golden = list(map(bytes.fromhex, path.read_text().split()))
    assert encode(HEADER, message) == golden
    assert decode(golden) == (HEADER, message)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"index": [2] * 200}, "must be places among 2 items"),
        ({"index": [-1] * 200}, "must be places among 2 items"),
        ({"index": [True] * 200}, "must be places among 2 items"),
        ({"index": [[]] * 200}, "must be places among 2 items"),
        ({"index": {}}, "players: must be a list, got a map"),
        ({"items": {}}, "players: must be a list, got a map"),
        ({"more": 1}, "players: must be a list, got a map"),
    ],
)
def test_places_of_no_player_are_refused(change: dict[str, object], rule: str) -> None:
    body = body_of(OF_MANY_SEATS["train"])
    body["opponents"][0]["players"] |= change
    with pytest.raises(DecodeError, match=rule):
        decode(frames_with(body))


def test_a_field_is_sent_where_it_says_something() -> None:
    assert "lesson" not in body_of(TRAIN)
    third = replace(TRAIN, lesson=3)
    assert body_of(third)["lesson"] == 3
    assert decode(encode(HEADER, third)) == (HEADER, third)


@pytest.mark.parametrize(
    ("version", "path"), OLDER, ids=lambda value: getattr(value, "stem", value)
)
def test_frames_of_earlier_versions_are_refused_by_their_number(version: int, path: Path) -> None:
    frames = list(map(bytes.fromhex, path.read_text().split()))
    with pytest.raises(VersionMismatch, match=f"version {version}, this side 3"):
        decode(frames)


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.__name__)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_every_message_arrives_as_it_was_sent(kind: type[Message], data: st.DataObject) -> None:
    header = data.draw(instances(Header))
    message = data.draw(instances(kind))
    assert decode(encode(header, message)) == (header, message)


def test_whole_numbers_among_hyperparameters_stay_integers() -> None:
    decoded = decode(encode(HEADER, TRAIN))[1]
    assert isinstance(decoded, Train)
    numbers = decoded.trainees[0].hyperparameters
    assert {name: type(value) for name, value in numbers.items()} == {
        "learning_rate": float,
        "num_epochs": int,
        "entropy_coef": float,
    }


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=6))
def test_arbitrary_frames_raise_wire_errors_only(frames: list[bytes]) -> None:
    with pytest.raises(WireError):
        decode(frames)


@settings(max_examples=300, deadline=None)
@given(body=st.binary(max_size=300), kind=st.sampled_from(list(KINDS.values())))
def test_arbitrary_bodies_are_refused_or_are_messages(body: bytes, kind: type[Message]) -> None:
    try:
        decoded = decode(frames_with(body, kind=kind))
    except DecodeError:
        return
    assert type(decoded[1]) is kind


@settings(max_examples=500, deadline=None)
@given(
    message=st.sampled_from(EXAMPLES),
    frame=st.integers(0, 3),
    position=st.integers(0, 10_000),
    replacement=st.binary(max_size=3),
)
@pytest.mark.slow
def test_mutated_frames_raise_wire_errors_only(
    message: Message, frame: int, position: int, replacement: bytes
) -> None:
    frames = encode(HEADER, message)
    start = position % len(frames[frame])
    mutated = frames[frame]
    frames[frame] = mutated[:start] + replacement + mutated[start + 1 :]
    try:
        header, decoded = decode(frames)
    except WireError:
        return
    # A decoded message can be encoded again, so decoding accepts nothing that the rules forbid.
    assert decode(encode(header, decoded)) == (header, decoded)


@pytest.mark.parametrize("message", EXAMPLES, ids=name_of)
def test_truncated_messages_are_refused(message: Message) -> None:
    frames = encode(HEADER, message)
    for frame in (2, 3):
        for length in range(len(frames[frame])):
            cut = [*frames[:frame], frames[frame][:length], *frames[frame + 1 :]]
            with pytest.raises(DecodeError):
                decode(cut)


def test_magic_and_kind_are_checked() -> None:
    magic, kind, header, body = encode(HEADER, TRAIN)
    with pytest.raises(DecodeError, match="begins with b'ARENA', not 48545450"):
        decode([b"HTTP", kind, header, body])
    with pytest.raises(DecodeError, match="2 bytes, not 3"):
        decode([magic, kind + b"\0", header, body])
    with pytest.raises(DecodeError, match="no message of kind 99"):
        decode([magic, bytes([kind[0], 99]), header, body])


def changed(**changes: object) -> Callable[[dict[str, Any]], object]:
    return lambda body: body | changes


def trainee(**changes: object) -> Callable[[dict[str, Any]], object]:
    return lambda body: body | {"trainees": [body["trainees"][0] | changes]}


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda body: list(body.items()), "Train: must be a map"),
        (changed(surprise=1), "Train: must have the fields of its type"),
        (
            lambda body: {k: v for k, v in body.items() if k != "seed"},
            "seed is required",
        ),
        (trainee(surprise=1), "Train: must have the fields of its type"),
        (changed(seed=1.0), "seed: must be int"),
        (changed(seed=True), "seed: must be int"),
        (changed(seed=-1), "seed: must be int"),
        (changed(seed=2**63), "seed: must be int"),
        (changed(seed=None), "seed: must be int"),
        (changed(episode_length="60"), "episode_length: must be float"),
        (changed(episode_length=math.inf), "episode_length: must be a finite number"),
        (changed(episode_length=math.nan), "episode_length: must be a finite number"),
        (changed(episodes=-1), "episodes: must be int"),
        (changed(carried=[{}]), "carried: players is required"),
        (changed(may_stop_early=1), "may_stop_early: must be bool"),
        (changed(trainees={}), "trainees: must be a list"),
        (trainee(policy="../p001"), "policy: must be a policy"),
        (trainee(policy="player/p003\n"), "policy: must be a policy"),
        (trainee(donor="Player/p003"), "donor: must be a policy"),
        (trainee(hyperparameters={"x": math.nan}), "hyperparameters: must be a finite number"),
        (
            trainee(hyperparameters={"x": None}),
            "hyperparameters: must be bool | int | float | str, got null",
        ),
        (trainee(hyperparameters=[1]), "hyperparameters: must be a map"),
    ],
)
def test_what_breaks_a_rule_is_refused_by_name(
    change: Callable[[dict[str, Any]], object], where: str
) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(frames_with(change(body_of(TRAIN))))
    assert where in str(caught.value)


@pytest.mark.parametrize(
    "key",
    [
        *("", "/etc/passwd", "a//b", "a/", "..", "a/../b", ".", "./a", "../a", "a/.."),
        *("a\\b", "a b", "a\0", "ä", "a\n", "x" * 513, "a/" * 300 + "a", "C:/a", "~/a"),
    ],
)
def test_keys_cannot_leave_the_store(key: str) -> None:
    body = body_of(TRAIN)
    body["trainees"][0]["checkpoint"]["key"] = key
    with pytest.raises(DecodeError, match="key: must be a key in the store"):
        decode(frames_with(body))


@pytest.mark.parametrize("digest", ["", "0" * 63, "0" * 65, "G" * 64, "A" * 64, "0" * 64 + "\n"])
def test_digests_are_64_hexadecimal_digits(digest: str) -> None:
    body = body_of(TRAIN)
    body["trainees"][0]["checkpoint"]["digest"] = digest
    with pytest.raises(DecodeError, match="digest: must be a digest"):
        decode(frames_with(body))


def nested(depth: int) -> bytes:
    return b"\x91" * depth + b"\xc0"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        nested(100),
        nested(1000),
        nested(100_000),
        b"\xdd\xff\xff\xff\xff",  # a list that claims 4 billion items
        b"\xdf\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\xa1\xff",  # no UTF-8
        b"\xd4\x01\x00",  # an extension type
        b"\xd6\xff\0\0\0\0",  # a timestamp
        b"\xc4\x01\x00",  # bytes
        b"\x81\x01\x02",  # a key that is no text
        b"\x81\xa6reason\xa0\xc0",  # something after the end
        b"\x82\xa6reason\xa0\xa6reason\xa0",  # a key twice
        b"\x81\xa6reason\xc4\x01\x00",
    ],
)
def test_malformed_msgpack_is_refused_and_hardly_quoted(body: bytes) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(frames_with(body, kind=Goodbye))
    assert len(str(caught.value)) < 200


def test_repeated_keys_are_refused() -> None:
    body = b"\x82\xa6reason\xa1a\xa6reason\xa1b"
    with pytest.raises(DecodeError, match="a key occurs twice"):
        decode(frames_with(body, kind=Goodbye))


def test_a_frame_of_empty_lists_is_given_up_early() -> None:
    row = b"\xdc\xff\xff" + b"\x90" * 65535
    # The body ends with invalid msgpack, so the error shows whether decoding went that far.
    body = b"\x9f" + row * 15 + b"\xc1"
    assert len(body) < MAX_FRAME_BYTES
    with pytest.raises(DecodeError, match=f"more than {MAX_CONTAINERS}"):
        decode(frames_with(body))


def test_oversize_frames_are_refused_unread() -> None:
    with pytest.raises(DecodeError, match="bytes are more than"):
        decode(frames_with(b"\x90" * (MAX_FRAME_BYTES + 1)))
    frames = encode(HEADER, TRAIN)
    with pytest.raises(DecodeError, match="Header"):
        decode([frames[0], frames[1], frames[2] + b" " * 1024, frames[3]])


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Welcome(heartbeat_s=math.nan), "heartbeat_s: must be float >= 0.0"),
        (Welcome(heartbeat_s=-1.0), "heartbeat_s: must be float >= 0.0"),
        (Goodbye(reason="x" * 16385), "reason: must be str of length <= 16384"),
        (replace(TRAIN, opponents=TRAIN.opponents * 900), "bytes, more than"),
        (
            replace(FINISHED, metrics=dict.fromkeys(map(str, range(4097)), 0.0)),
            "no msgpack of ours",
        ),
        (Goodbye(reason="\ud800"), "Goodbye cannot be sent"),
        (replace(FINISHED, metrics={"loss": math.inf}), "metrics: must be a finite number"),
    ],
)
def test_what_would_be_refused_is_not_sent(message: Message, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        encode(HEADER, message)


def test_ids_are_checked_before_sending() -> None:
    with pytest.raises(WireError, match="learner"):
        encode(replace(HEADER, learner=LearnerId("two words")), TRAIN)
    wrong = replace(TRAIN.trainees[0], policy=PolicyId("p3"))
    with pytest.raises(WireError, match="policy: must be a policy"):
        encode(HEADER, replace(TRAIN, trainees=(wrong,)))
