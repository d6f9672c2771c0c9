from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from docs.generate.repository import nodes, parse
from experiments.house import children, rings

pytestmark = pytest.mark.xdist_group("sources")
ROOT = Path(__file__).parent.parent
SOURCES = sorted(
    path.relative_to(ROOT)
    for folder in ("arena", "populations", "tools", "configs")
    for path in (ROOT / folder).rglob("*.py")
)


def tree(path: Path) -> ast.Module:
    return parse(ROOT / path)


def imported(path: Path, *, runtime_only: bool = False) -> Iterator[str]:
    module = tree(path)
    skipped = set()
    if runtime_only:
        for node in nodes(module):
            if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
                skipped |= {id(inner) for child in node.body for inner in ast.walk(child)}
    for node in nodes(module):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def test_there_are_sources() -> None:
    assert {path.parts[0] for path in SOURCES} == {"arena", "populations", "tools", "configs"}


def test_imports_point_one_way() -> None:
    above = {"arena": ("populations", "tools", "configs"), "populations": ("tools", "configs")}
    wrong = [
        (str(path), name)
        for path in SOURCES
        for name in imported(path)
        for forbidden in (*above.get(path.parts[0], ("tools", "configs")), "populations.commands")
        if is_within(name, forbidden)
    ]
    assert wrong == []


UPWARD = ("arena/__init__.py", "arena/testing.py")
"""The one exception: these resolve public names lazily, whose home is above."""


def named_above(path: Path) -> list[str]:
    """Modules above a module's package that its texts name, to be imported later."""
    above = "populations" if path.parts[0] == "arena" else "populations.commands"
    return [
        node.value
        for node in nodes(tree(path))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and is_within(node.value, above)
        and all(part.isidentifier() for part in node.value.split("."))
    ]


def test_only_the_public_names_are_resolved_upward() -> None:
    found = {
        path.as_posix()
        for path in SOURCES
        if path.parts[0] in ("arena", "populations") and "." in "".join(named_above(path))
    }
    assert found <= set(UPWARD)
    assert "arena/__init__.py" in found


def source_of(name: str) -> Path | None:
    """The file of a module, or of the module that holds a name."""
    parts = name.split(".")
    for stem in (Path(*parts), Path(*parts[:-1])):
        for path in (stem.with_suffix(".py") if stem.parts else stem, stem / "__init__.py"):
            if (ROOT / path).is_file():
                return path
    return None


def reaches_torch(path: Path, seen: set[Path]) -> list[str]:
    """The chain of modules from here to torch; empty if there is none."""
    seen.add(path)
    for name in imported(path, runtime_only=True):
        if is_within(name, "torch"):
            return [str(path), name]
        inner = source_of(name)
        if inner is not None and inner not in seen and inner.parts[0] == "arena":
            chain = reaches_torch(inner, seen)
            if chain:
                return [str(path), *chain]
    return []


def test_populations_reach_no_torch() -> None:
    seen: set[Path] = set()
    for path in SOURCES:
        if path.parts[0] == "populations":
            assert reaches_torch(path, seen) == []


def test_the_search_for_torch_finds_it() -> None:
    chain = reaches_torch(Path("arena/learning/ppo.py"), set())
    assert chain[0] == "arena/learning/ppo.py"
    assert is_within(chain[-1], "torch")


WITHOUT_TORCH = (
    "arena.files",
    "arena.learning.hyperparameters",
    "arena.envs.openspiel.game",
    *("arena.learners.spawn", "arena.learners.process", "arena.wire.in_memory"),
)


def test_what_starts_learners_and_reads_their_settings_loads_no_torch() -> None:
    code = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name)\n"
        "    assert 'torch' not in sys.modules, name"
    )
    subprocess.run([sys.executable, "-c", code, *WITHOUT_TORCH], check=True)


MAX_MODULES = 15

ROOMS = (
    *("server", "machine", "phases", "ghost_thinning", "assignments", "evaluation", "evolution"),
    *(
        "result_merging",
        "lineups",
        "opponents",
        "monitoring",
        "state",
        "rating_fit",
        "rating_input",
        "indexes",
    ),
)
"""Of the controller, each above those that it may import."""


def test_no_folder_has_more_modules_than_one_reads() -> None:
    modules = Counter(path.parent.as_posix() for path in SOURCES if path.name != "__init__.py")
    assert {name for name, number in modules.items() if number > MAX_MODULES} == set()


@cache
def graphs() -> dict[tuple[str, ...], dict[str, set[str]]]:
    return children({path: tree(path) for path in SOURCES})


def test_children_of_a_package_form_no_ring() -> None:
    found = {".".join(package): rings(graph) for package, graph in graphs().items()}
    found = {package: ring for package, ring in found.items() if ring}
    assert found == {}


def test_rings_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set[str]()}
    assert rings(graph) == [{"a", "b", "c"}]


def test_rooms_of_the_controller_import_those_below() -> None:
    graph = graphs()["populations", "controller"]
    wrong = [
        (one, other)
        for one, others in graph.items()
        for other in others
        if ROOMS.index(one) >= ROOMS.index(other)
    ]
    assert wrong == []


WHOLE = 96
"""Functions that take the whole state of the controller; a change may only make them fewer."""


def takers(path: Path, kind: str) -> list[str]:
    """Return the functions of a module that have an argument of a type."""
    return [
        f"{path}:{node.name}"
        for node in nodes(tree(path))
        if isinstance(node, ast.FunctionDef)
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        if argument.annotation is not None and ast.unparse(argument.annotation) == kind
    ]


def test_few_functions_take_the_whole_state_of_the_controller() -> None:
    found = [name for path in SOURCES for name in takers(path, "ControllerState")]
    assert len(found) <= WHOLE, found


def test_who_takes_the_whole_state_is_found() -> None:
    machine = Path("populations/controller/machine.py")
    assert f"{machine}:handle" in takers(machine, "ControllerState")


RATED = ("ratings", "anchor_errors", "optimism", "rank_lows", "rank_highs")
"""Fields of the row of a fit that ratings are made of."""

OF_THEIR_OWN = ("tools/evaluate/", "tools/api/evaluate.py", "tools/rate.py")
"""Commands that rate matches of no run."""


def rated_fields(path: Path) -> list[str]:
    """Accesses to what ratings are made of, but for the table of fits itself."""
    return [
        ast.unparse(node)
        for node in nodes(tree(path))
        if isinstance(node, ast.Attribute)
        and node.attr in RATED
        # `_state.fits.ratings(...)` is the controller's own reader, `figures.ratings` draws.
        and not ast.unparse(node.value).endswith(("tables", "fits", "figures", "curves"))
    ]


def test_what_shows_a_rating_reads_it_from_one_module() -> None:
    showing = ("populations/views/", "populations/hooks/", "tools/")
    wrong = {
        str(path): rated_fields(path)
        for path in SOURCES
        if str(path).startswith(showing) and not str(path).startswith(OF_THEIR_OWN)
    }
    wrong = {path: fields for path, fields in wrong.items() if fields}
    assert wrong == {}, "populations.league.ratings has the one number"


def test_who_reads_the_rows_of_a_fit_is_found() -> None:
    assert rated_fields(Path("populations/league/ratings.py"))
