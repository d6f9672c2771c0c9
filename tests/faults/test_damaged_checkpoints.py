"""Damaged checkpoints: set aside, said so, and their policies go on from an older one."""

from __future__ import annotations

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
from populations.records.rows import CheckpointRow, EventRow, PolicyRow
from populations.records.tables import Tables
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
