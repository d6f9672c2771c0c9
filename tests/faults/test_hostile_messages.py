"""Bytes that no learner would send: malformed, too many, too large, another version (F25-F28)."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.types import LearnerId
from arena.wire.messages import PROTOCOL_VERSION, FromLearner, Hello
from arena.wire.session import MAX_BAD_MESSAGES, ControllerSession
from experiments.faults.fuzz import DEADLINE_S, MAX_GROWTH_BYTES, MIB, faults, fuzz
from experiments.faults.fuzz_messages import Fuzzer, Victim
from tests.arena.learners.stub import spawn_stub
from tests.arena.wire.examples import DIGEST, LEARNER, RUN
from tests.support import wait_until

EPOCH = 2
NUM_MESSAGES = 20_000
VICTIM = Victim(
    run=RUN,
    epoch=EPOCH,
    learner=LEARNER,
    assignment_id=12,
    environment_digest=DIGEST,
    config_digest=DIGEST,
)
HOSTILE = LearnerId("hostile-1")


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_what_a_session_lets_through_is_a_peers_own_valid_message(seed: int) -> None:
    """And of undecodable ones twenty are read, one a second is answered."""
    fuzzer = Fuzzer(VICTIM, HOSTILE, random.Random(seed))
    session = ControllerSession(run=RUN, epoch=EPOCH)
    answers = []
    for _ in range(40):
        _, frames = fuzzer.next()
        opened = session.open(HOSTILE.encode(), frames, now_s=0.0)
        if isinstance(opened, list):
            answers.append(opened)
        else:
            assert opened is None or isinstance(opened, FromLearner)
        if isinstance(opened, Hello):
            assert opened.learner == HOSTILE
    assert len(answers) <= 1
    read = session.num_bad["malformed"] + session.num_bad["impostor"]
    assert read <= MAX_BAD_MESSAGES
    assert (session.num_bad["muted"] > 0) <= (read == MAX_BAD_MESSAGES)


def test_a_controller_among_hostile_peers_keeps_its_state_its_time_and_its_memory(
    tmp_path: Path,
) -> None:
    """The small edition of `python -m experiments.faults.fuzz`, which sends a million."""
    found = fuzz(tmp_path, messages=NUM_MESSAGES, seed=1, note=lambda number: None)
    assert found["messages_sent"] >= NUM_MESSAGES
    assert found["faults"] == []
    for half in ("without_keys", "with_keys"):
        assert faults(found[half]) == []
        assert found[half]["state_before"] == found[half]["state_after"]
        assert found[half]["working"]["max_s"] < DEADLINE_S
        assert found[half]["rss_growth_mib"] < MAX_GROWTH_BYTES / MIB
        bad = found[half]["bad_messages"]
        assert {"malformed", "impostor", "version", "run", "fenced", "repeated", "muted"} <= {*bad}
    assert found["with_keys"]["bad_messages"]["key"] > 0


@pytest.mark.parametrize(
    ("connections", "growth_mib", "found"),
    [(0, 63, []), (0, 65, ["memory grew"]), (32, 65, []), (32, 67, ["memory grew"])],
)
def test_only_connections_in_the_name_of_a_connected_peer_may_cost_more_memory(
    connections: int, growth_mib: int, found: list[str]
) -> None:
    figures = {
        "by_kind": {"stranger": 1000, "borrowed_name": connections},
        "state_before": "a",
        "state_after": "a",
        "learners_lost": 0,
        "working": {"max_s": 0.1},
        "rss_growth_mib": growth_mib,
        "exit_codes": {"controller": 0, "healthy_learner": 0},
    }
    assert faults(figures) == found


@pytest.fixture
def directory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv(
        "PYTHONPATH", str(Path(__file__).parents[2])
    )  # for ``-m tests.arena.learners.stub``
    # a short path, because sockets allow 107 bytes
    with tempfile.TemporaryDirectory(prefix="v-", dir="/tmp") as path:
        yield Path(path)


@pytest.mark.parametrize(
    ("version", "upgrade"),
    [(PROTOCOL_VERSION - 1, "controller"), (PROTOCOL_VERSION + 1, "learner")],
)
def test_a_learner_and_a_controller_of_another_version_part_with_2_and_advice(
    directory: Path, version: int, upgrade: str
) -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as other:
        other.setsockopt(zmq.LINGER, 0)
        other.bind(f"ipc://{directory}/s")
        process = spawn_stub(directory, f"ipc://{directory}/s")
        try:
            assert other.poll(60_000)
            identity = other.recv_multipart()[0]
            other.send_multipart([identity, b"ARENA", bytes([version, 17]), b"?", b"?"])
            wait_until(lambda: process.poll() is not None, timeout_s=60.0)
            assert process.poll() == 2
        finally:
            process.close()
    log = (directory / "logs" / "learner.log").read_text()
    assert (
        f"the learner speaks protocol version {PROTOCOL_VERSION}, the controller {version}: "
        f"upgrade arena-league where the {upgrade} runs"
    ) in log
