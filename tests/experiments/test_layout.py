"""Groups of experiments stay readable: few modules each, no ring of imports."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

from experiments.house import children, rings

ROOT = Path(__file__).parents[2]
MAX_MODULES = 15
SOURCES = {
    path.relative_to(ROOT): ast.parse(path.read_text(encoding="utf8"))
    for path in sorted((ROOT / "experiments").rglob("*.py"))
}


def test_no_group_has_too_many_modules() -> None:
    modules = Counter(path.parent for path in SOURCES if path.name != "__init__.py")
    assert modules
    assert max(modules.values()) <= MAX_MODULES


def test_groups_form_no_ring() -> None:
    graphs = children(SOURCES)
    assert graphs
    assert {package: rings(graph) for package, graph in graphs.items() if rings(graph)} == {}
