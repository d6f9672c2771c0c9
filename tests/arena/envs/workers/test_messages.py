"""Messages to workers and back."""

from __future__ import annotations

import os
import socket
from contextlib import closing

import msgpack
import pytest

from arena.codec import msgpack_bytes
from arena.config import EnvironmentConfig
from arena.environment_spec import AgentSpec, EnvironmentSpec
from arena.envs.base import Phase
from arena.envs.episode_metrics import Report
from arena.envs.one_by_one.steppers import EnvsRequest
from arena.envs.workers.messages import (
    Answer,
    Call,
    Channel,
    Close,
    Error,
    Make,
    Play,
)
from arena.errors import DecodeError

PHASE = Phase(name="training", agent_steps=None, players={"a": "bot:random"})


def received(body: bytes) -> object:
    ours, theirs = socket.socketpair()
    with closing(Channel(ours)) as channel, closing(theirs):
        theirs.sendall(len(body).to_bytes(4, "little") + body)
        return channel.receive()[0]


# Arguments may be any, also those that look like a list in its shorter form.
SPEC = EnvironmentSpec(
    id="a:b",
    kwargs={"x": [1, float("inf")], "y": {"items": [1], "index": [7]}},
    api="parallel",
    agents=("a",),
    agent_specs={"a": AgentSpec(observation={"type": "box"}, action={"n": 2}, mask=None)},
)
REQUEST = EnvsRequest(
    EnvironmentConfig(id="a:b", kwargs={"depth": 2}),
    spec=SPEC,
    sides={"a": ("a",)},
    populations={"player": ("a",)},
    num_envs=4,
    launch_directory="/",
)
MESSAGES = (
    Make(batch=1, request=REQUEST, first=3, num_envs=8),
    Play(
        batch=1,
        calls=(Call(kind="halt", environments=(0, 2)), Call(kind="tell", phases=(None, PHASE))),
        max_faults=0,
        seeds=(2**63 - 1, 0),
    ),
    Answer(
        faults=(
            Error(kind="exhaustion", text="é", traceback="x" * 100_000, stage=2, num_played=7),
        ),
        figures=(Report(environment=1, agent=0, figures={"sum": 0.1}, num_ignored=2),),
        has_void=True,
        error=Error(kind="config", text="no", traceback=""),
    ),
)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_they_arrive_as_they_were_sent(message: Make | Play | Answer) -> None:
    assert received(msgpack_bytes(message, is_ours=True)) == message


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        msgpack.packb(3),
        msgpack.packb({"type": "Nothing"}),
        msgpack.packb({"type": "Close"}),
        msgpack.packb({"type": "Close", "batch": True}),
        msgpack.packb({"type": "Close", "batch": 1, "more": 2}),
        msgpack.packb({"type": ["Close"], "batch": 1}),
        msgpack.packb({"batch": 1}),
    ],
)
def test_others_are_refused(body: bytes) -> None:
    with pytest.raises(DecodeError):
        received(body)


def test_one_that_is_whole_is_taken() -> None:
    assert received(msgpack.packb({"type": "Close", "batch": 1})) == Close(batch=1)


def test_a_descriptor_travels_beside_its_message() -> None:
    ends = [Channel(end) for end in socket.socketpair()]
    with closing(ends[0]), closing(ends[1]):
        read_fd, write_fd = os.pipe()
        ends[0].send(MESSAGES[0], fd=write_fd)
        os.close(write_fd)
        message, fd = ends[1].receive()
        assert message == MESSAGES[0]
        assert fd is not None
        os.write(fd, b"x")
        os.close(fd)
        assert os.read(read_fd, 2) == b"x"
        os.close(read_fd)
        ends[1].send(Answer())
        assert ends[0].receive() == (Answer(), None)


@pytest.mark.parametrize("sent", [b"", b"\x01\x00", b"\x05\x00\x00\x00abc"])
def test_a_message_that_is_cut_off_is_an_end(sent: bytes) -> None:
    ours, theirs = socket.socketpair()
    with closing(Channel(ours)) as channel:
        theirs.sendall(sent)
        theirs.close()
        with pytest.raises(EOFError):
            channel.receive()


def test_a_message_that_is_too_long_is_refused_before_it_is_read() -> None:
    ours, theirs = socket.socketpair()
    with closing(Channel(ours)) as channel, closing(theirs):
        theirs.sendall(b"\xff\xff\xff\xff")
        with pytest.raises(DecodeError, match="a message may have"):
            channel.receive()
