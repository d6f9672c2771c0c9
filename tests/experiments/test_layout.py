"""Groups of experiments stay readable: few modules each, no ring of imports."""

from __future__ import annotations

from collections import Counter

import pytest

from docs.generate.repository import modules
from experiments.house import children, rings

# The tests run in the group of the import tests, which read the same files.
pytestmark = pytest.mark.xdist_group("sources")
MAX_MODULES = 15


def test_no_group_has_too_many_modules() -> None:
    paths = [path for path, _ in modules("experiments")]
    found = Counter(path.parent for path in paths if path.name != "__init__.py")
    assert found
    assert max(found.values()) <= MAX_MODULES


def test_groups_form_no_ring() -> None:
    graphs = children(dict(modules("experiments")))
    assert graphs
    assert {package: rings(graph) for package, graph in graphs.items() if rings(graph)} == {}
