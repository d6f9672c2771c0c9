"""The fault matrix: every test here is marked ``faults``; `make test-faults` runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
TIMEOUT_S = 300
"""Many processes start here, and the machine may have other work, too."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies in this folder."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.faults)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TIMEOUT_S))
