"""Tests of a group share one worker, so that what they share is set up once."""

from __future__ import annotations

import os

import pytest


@pytest.mark.xdist_group("groups")
def test_workers_are_told_of_groups(request: pytest.FixtureRequest) -> None:
    """A group is a suffix of the test's name: pytest-xdist sends equal suffixes to one worker."""
    options = request.config.invocation_params.args
    if "PYTEST_XDIST_WORKER" not in os.environ or "loadgroup" not in options:
        pytest.skip("not started with --dist loadgroup")
    assert request.node.nodeid.endswith("@groups")
