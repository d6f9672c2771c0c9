"""Damaged checkpoints: set aside, said so, and their policies go on from an older one."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arena.checkpoints.manifest import MANIFEST, OPTIMIZER, WEIGHTS
from arena.types import PolicyId
from populations.audit.verify import verify_run
from populations.records.aggregates import Row
from populations.records.rows import CheckpointRow, EventRow, PolicyRow, RunRow
from populations.records.tables import Tables
from populations.storage.journal import Journal, JournalReader
from populations.storage.recovery import recover
from tests.populations.small_run import SmallRun

FILES = (WEIGHTS, OPTIMIZER, MANIFEST)
P0 = PolicyId("player/p000")


@pytest.fixture(scope="module")
def run() -> Iterator[SmallRun]:
    """A run whose journal never changes: each example puts its bytes back."""
    with tempfile.TemporaryDirectory() as directory:
        run = SmallRun(Path(directory))
        with run.journal:
            yield run


def recovered_from(run: SmallRun, name: str, data: bytes) -> list[Row]:
    """What a resumed run does about a current checkpoint whose file has other bytes."""
    newest = run.checkpoints_of(P0)[-1]
    directory = run.run_dir / newest.key
    before = (directory / name).read_bytes()
    (directory / name).write_bytes(data)
    try:
        rows = recover(run.run_dir, run.tables, utc="now")
        (aside,) = directory.parent.glob(f"corrupt-{directory.name}-*")
    except BaseException:
        (directory / name).write_bytes(before)
        raise
    aside.rename(directory)
    (directory / name).write_bytes(before)
    return rows


def assert_fell_back(rows: list[Row], tables: Tables, run: SmallRun) -> None:
    """The newest checkpoint is corrupt, the one before it is current, and two events say so."""
    _, parent, newest = run.checkpoints_of(P0)
    corrupt, policy, *events = rows
    assert isinstance(corrupt, CheckpointRow)
    assert isinstance(policy, PolicyRow)
    assert (corrupt.key, corrupt.state) == (newest.key, "corrupt")
    assert policy.checkpoint == parent.key
    assert policy.agent_steps == tables.policies[P0].agent_steps
    kinds = [event.kind for event in events if isinstance(event, EventRow)]
    assert kinds == ["checkpoint_corrupt", "fell_back"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("sixteenth", range(16))
def test_truncated_at_sixteen_lengths(run: SmallRun, name: str, sixteenth: int) -> None:
    data = (run.run_dir / run.checkpoints_of(P0)[-1].key / name).read_bytes()
    rows = recovered_from(run, name, data[: len(data) * sixteenth // 16])
    assert_fell_back(rows, run.tables, run)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(name=st.sampled_from(FILES), place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_any_bit_flipped(run: SmallRun, name: str, place: float, bit: int) -> None:
    data = bytearray((run.run_dir / run.checkpoints_of(P0)[-1].key / name).read_bytes())
    data[int(place * len(data))] ^= 1 << bit
    assert_fell_back(recovered_from(run, name, bytes(data)), run.tables, run)


def test_after_all_of_it_the_run_is_as_it_was(run: SmallRun) -> None:
    assert verify_run(run.run_dir).faults == []


COMMITTER = """
import sys
from msgspec.structs import replace
from pathlib import Path
from populations.storage.journal import Journal
from populations.records.rows import EventRow

with Journal.open(Path(sys.argv[1])) as journal:
    run = journal.load().run
    for number in range(1, int(sys.argv[2]) + 1):
        run = replace(run, matches=number)
        event = EventRow(sequence=number, time="", kind="k", subject="", data={"x": "y" * 500})
        journal.commit([event, run])
    print("committed", flush=True)
    sys.stdin.read()
"""
NUM_COMMITS = 40
HEADER_BYTES, FRAME_BYTES = 32, 24 + 4096


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal with 40 commits in its WAL, whose writer was killed."""
    path = tmp_path_factory.mktemp("killed") / "journal.db"
    Journal.create(path, [RunRow(run="r")]).close()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        [sys.executable, "-c", COMMITTER, str(path), str(NUM_COMMITS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"committed\n"
        process.send_signal(signal.SIGKILL)
    return path


def num_committed(path: Path) -> int:
    """How many commits a journal holds, as a reader and as the next writer see it: each whole."""
    with JournalReader(path) as reader:
        reader.integrity_check()
        seen = reader.load()
        events = reader.events()
    with Journal.open(path) as journal:
        tables = journal.load()
    assert tables == seen
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert tables.run.matches == tables.num_events == len(events)
    return len(events)


def with_wal(killed: Path, directory: Path, wal: bytes) -> Path:
    """A copy of the journal with another WAL."""
    directory.mkdir()
    path = directory / "journal.db"
    shutil.copyfile(killed, path)
    path.with_name("journal.db-wal").write_bytes(wal)
    return path


def test_garbage_after_the_end_loses_nothing(killed: Path, tmp_path: Path) -> None:
    wal = Path(f"{killed}-wal").read_bytes()
    rng = random.Random(1)
    for size in (0, 1, 23, 24, 777, FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 1, 50_000):
        copy = with_wal(killed, tmp_path / str(size), wal + rng.randbytes(size))
        assert num_committed(copy) == NUM_COMMITS


def test_cut_anywhere_it_holds_what_was_committed_before(killed: Path, tmp_path: Path) -> None:
    wal = Path(f"{killed}-wal").read_bytes()
    rng = random.Random(2)
    # The cuts are at each frame's beginning and end, within its header and page, and in the last
    # record.
    cuts = {HEADER_BYTES + frame * FRAME_BYTES for frame in range(len(wal) // FRAME_BYTES)}
    cuts |= {cut + rng.randrange(1, FRAME_BYTES) for cut in sorted(cuts)[-30:]}
    cuts |= {*range(0, HEADER_BYTES, 8), *range(len(wal) - 16, len(wal) + 1)}
    found = []
    for cut in sorted(cuts):
        copy = with_wal(killed, tmp_path / str(cut), wal[:cut])
        found.append(num_committed(copy))
        shutil.rmtree(copy.parent)
    assert found == sorted(found), "more of the WAL is never less of the journal"
    assert found[0] == 0
    assert found[-1] == NUM_COMMITS
    assert set(found) == set(range(NUM_COMMITS + 1)), "each commit is there whole or not at all"


def test_a_record_that_was_overwritten_ends_it(killed: Path, tmp_path: Path) -> None:
    wal = Path(f"{killed}-wal").read_bytes()
    rng = random.Random(3)
    for number in range(20):
        place = rng.randrange(HEADER_BYTES, len(wal))
        damaged = bytearray(wal)
        damaged[place] ^= 1 << rng.randrange(8)
        copy = with_wal(killed, tmp_path / str(number), bytes(damaged))
        cut = with_wal(killed, tmp_path / f"{number}-cut", wal[:place])
        assert num_committed(copy) == num_committed(cut) <= NUM_COMMITS
