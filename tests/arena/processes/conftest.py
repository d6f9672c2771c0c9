from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.faults.simulators import VARIABLE, simulators

ROOT = Path(__file__).parents[3]


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """What the simulators of one test are known by."""
    token = str(uuid.uuid4())
    monkeypatch.setenv(VARIABLE, token)
    yield token
    for process in simulators(token):
        process.kill()


@pytest.fixture(autouse=True)
def _on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children import the tests, too."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
