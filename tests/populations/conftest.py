from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.populations.small_run import SmallRun


@pytest.fixture
def small_run(tmp_path: Path) -> Iterator[SmallRun]:
    run = SmallRun(tmp_path)
    with run.journal:
        yield run
