"""Processes that step environments end with their parent, and leave nothing behind."""

from __future__ import annotations

import gc
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgpack
import psutil
import pytest

from arena.codec import msgpack_bytes
from arena.config import EnvironmentConfig
from arena.environment_spec import AgentSpec, EnvironmentSpec
from arena.envs.base import Phase
from arena.envs.episode_metrics import Report
from arena.envs.make import make_batched_env
from arena.envs.one_by_one.steppers import EnvsRequest
from arena.envs.workers.crew import Crew
from arena.envs.workers.envs import EnvWorkers
from arena.envs.workers.messages import (
    Answer,
    Channel,
    Close,
    Error,
    Make,
    Play,
)
from arena.errors import DecodeError, EnvironmentFault, EnvWorkersLost
from tests.arena.envs.workers.test_worker_envs import SEEDS, Game, faulty

GAME = Game(id="classic/rps-v2")


@pytest.fixture
def workers() -> Iterator[EnvWorkers]:
    with closing(EnvWorkers(2)) as crew:
        yield crew


def crew_of(workers: EnvWorkers) -> Crew:
    assert workers._crew is not None
    return workers._crew


def is_gone(pid: int) -> bool:
    """Whether a process is no more, or waits for its parent to notice."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def open_files() -> set[str]:
    """Descriptors and mappings of this process, by what they are of."""
    found = set()
    for fd in Path("/proc/self/fd").iterdir():
        try:
            found.add(f"{fd.name} {fd.readlink()}")
        except OSError:
            continue
    return found


def mapped() -> int:
    """Number of mappings of environments' memory."""
    return Path("/proc/self/maps").read_text().count("memfd:arena-environments")


def test_a_killed_worker_is_named_and_others_are_started_for_the_next_batch(
    workers: EnvWorkers,
) -> None:
    one = make_batched_env(faulty("Rounds", "").request(), workers=workers)
    other = make_batched_env(faulty("Rounds", "").request(), workers=workers)
    turn = one.reset(SEEDS)
    other.reset(SEEDS)
    before = crew_of(workers)
    os.kill(before.pids[1], signal.SIGKILL)
    with pytest.raises(
        EnvWorkersLost,
        match=r"environment faulty:Rounds in step: process 2 of 2 that step environments "
        r"\(environment.num_env_workers\) was killed by SIGKILL, perhaps for lack of memory",
    ):
        one.step({name: group.new_actions() for name, group in turn.groups.items()})
    # The same processes ran the environments of `other`.
    with pytest.raises(EnvWorkersLost, match="was killed by SIGKILL"):
        other.reset(SEEDS)
    for env in (one, other):
        env.close()
    assert all(map(is_gone, before.pids))
    with closing(make_batched_env(GAME.request(), workers=workers)) as anew:
        anew.reset(SEEDS)
    assert crew_of(workers) is not before


def test_an_environment_that_exits_is_a_fault_of_the_environment(workers: EnvWorkers) -> None:
    game = faulty("Rounds", "exits", share=1.0)
    with closing(make_batched_env(game.request(), workers=workers)) as env:
        turn = env.reset(SEEDS)
        actions = {name: group.new_actions() for name, group in turn.groups.items()}
        env.step(actions)
        with pytest.raises(EnvironmentFault, match=r"in step, .* raised SystemExit"):
            env.step(actions)
        # The processes and their environments are still alive.
        env.reset(SEEDS)


def test_processes_hear_no_signal_of_a_group_and_end_when_they_are_closed() -> None:
    workers = EnvWorkers(2)
    env = make_batched_env(GAME.request(), workers=workers)
    env.reset(SEEDS)
    crew = crew_of(workers)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        for pid in crew.pids:
            os.kill(pid, number)
    env.reset(SEEDS)
    env.close()
    workers.close()
    assert [worker.poll() for worker in crew._workers] == [0, 0]


@pytest.mark.slow
def test_nothing_is_left_open_or_mapped() -> None:
    gc.collect()
    before, mapped_before = open_files(), mapped()
    workers = EnvWorkers(2)
    for _ in range(3):
        env = make_batched_env(GAME.request(), workers=workers)
        env.reset(SEEDS)
        assert mapped() > mapped_before
        env.close()
        del env
        gc.collect()
        assert mapped() == mapped_before
    for pid in crew_of(workers).pids:
        maps = Path(f"/proc/{pid}/maps").read_text()
        assert "memfd:arena-environments" not in maps
    workers.close()
    assert open_files() <= before


def test_after_an_interrupted_call_they_are_not_asked_again(workers: EnvWorkers) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    env = make_batched_env(GAME.request(), workers=workers, on_step=interrupt)
    turn = env.reset(SEEDS)
    actions = {name: group.new_actions() for name, group in turn.groups.items()}
    with pytest.raises(KeyboardInterrupt):
        env.step(actions)
    with pytest.raises(EnvironmentFault, match="the call before was interrupted"):
        env.step(actions)
    env.close()


PHASE = Phase(name="training", agent_steps=None, players={"a": "bot:random"})


def received(body: bytes) -> object:
    ours, theirs = socket.socketpair()
    with closing(Channel(ours)) as channel, closing(theirs):
        theirs.sendall(len(body).to_bytes(4, "little") + body)
        return channel.receive()[0]


# Arguments may have any value, also one that looks like the short form of a list.
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
        halted=(0, 2),
        phases=(None, PHASE),
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
