"""Old state or new state, nothing else: every write path, a fault at each of its points."""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from arena.errors import DiskRefused
from populations.errors import StorageError, StorageUnavailable
from tests.faults.nth import Scenario, copied, errors, kills, num_hits, states
from tests.faults.scenarios import SCENARIOS

GOLDEN = Path(__file__).with_name("nth_fault.json")
"""How often each scenario passes each point: where this changes, a write path has changed."""


@pytest.fixture(scope="module", params=sorted(SCENARIOS))
def name(request: pytest.FixtureRequest) -> str:
    """Of a scenario."""
    return str(request.param)


@contextmanager
def in_memory() -> Iterator[Path]:
    """A directory in memory, if there is such a place: hundreds of runs need no disk's fsync."""
    shared = Path("/dev/shm")
    place = shared if os.access(shared, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="arena-nth-", dir=place) as directory:
        yield Path(directory)


@pytest.fixture(scope="module")
def seed(name: str) -> Iterator[Path]:
    """State A, which nobody changes."""
    with in_memory() as directory:
        SCENARIOS[name].seed(directory)
        yield directory


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Where copies of it go."""
    with in_memory() as directory:
        yield directory


@pytest.fixture(scope="module")
def sides(name: str, seed: Path) -> Iterator[tuple[str, str]]:
    """A and B."""
    with in_memory() as directory:
        yield states(SCENARIOS[name], seed, directory)


def leads_to(scenario: Scenario, directory: Path, sides: tuple[str, str]) -> str:
    """What is found after a fault: one of the sides; from the old one the work leads to the new."""
    found = scenario.settle(directory)
    assert found in sides
    if found != sides[1]:
        scenario.act(directory)
        assert scenario.settle(directory) == sides[1]
    return found


def test_the_points_on_the_way_are_those_that_were_reviewed(
    name: str, seed: Path, scratch: Path
) -> None:
    with copied(seed, scratch) as directory:
        assert num_hits(SCENARIOS[name], directory) == Counter(json.loads(GOLDEN.read_text())[name])


def test_sigkill_at_each_point(
    name: str, seed: Path, sides: tuple[str, str], scratch: Path
) -> None:
    stores = kills(name, seed, scratch)
    assert len(stores) == sum(json.loads(GOLDEN.read_text())[name].values()) + 1
    if name == "export":
        assert all((store / "champion" / "card.json").is_file() for store in stores), "never absent"
    found = [leads_to(SCENARIOS[name], store, sides) for store in stores]
    assert found[-1] == sides[1], "nobody killed the last one"
    assert found[0] == sides[0], "nothing was written before the first point"
    # Changes are atomic: the state is old before one point and new after it.
    assert found == sorted(found, key=sides.index)


@pytest.mark.parametrize("code", ["ENOSPC", "EIO", "EROFS"])
def test_a_disk_that_refuses_at_each_point(
    name: str, seed: Path, sides: tuple[str, str], scratch: Path, code: str
) -> None:
    num_errors = 0
    for outcome in errors(SCENARIOS[name], seed, scratch, code=code):
        found = leads_to(SCENARIOS[name], outcome.directory, sides)
        num_errors += outcome.error is not None
        if outcome.error is None:
            # Either nothing was refused, or the next start repeats the step by itself.
            assert found == sides[1], outcome.point
        elif name in ("recovery", "repair"):
            assert isinstance(outcome.error, StorageError | DiskRefused), outcome
        elif name not in ("export", "export_in_two_steps"):
            assert isinstance(outcome.error, StorageError | DiskRefused), outcome
            passes = isinstance(outcome.error, StorageUnavailable | DiskRefused)
            assert passes == (code != "EIO" or isinstance(outcome.error, DiskRefused)), outcome
    assert num_errors > 0
