"""The fault matrix: every test here is marked ``faults``; `make test-faults` runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies in this folder; what starts processes takes turns."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.faults)
