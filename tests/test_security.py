"""What SECURITY.md promises about our own code: nothing unpickles, and nothing runs data."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from arena import files
from arena.checkpoints import files as checkpoint_files
from arena.wire import codec, unproven
from docs.generate.repository import nodes
from populations import yaml_documents
from tests.test_imports import SOURCES, tree
from tools.web import connections

# The tests run in the group of the import tests, which read the same files.
pytestmark = pytest.mark.xdist_group("sources")
ROOT = Path(__file__).parent.parent
RUN_WHAT_THEY_READ = (
    "pickle", "cPickle", "_pickle", "cloudpickle", "dill", "shelve", "marshal", "joblib",
    "multiprocessing.connection", "multiprocessing.managers", "xmlrpc", "code", "codeop",
)  # fmt: skip
CALLS = (
    "eval", "exec", "compile", "__import__", "yaml.load", "yaml.load_all", "yaml.full_load",
    "yaml.unsafe_load", "torch.load", "torch.save", "os.system", "os.popen", "tempfile.mktemp",
)  # fmt: skip
METHODS = ("recv_pyobj", "send_pyobj", "recv_string_pyobj", "read_pickle", "to_pickle")
LEAST = {
    # CVE-2026-57585: an Unpacker that is used again after an error crashes the process.
    "msgpack": (1, 2, 4),
    # CVE-2025-32434 and CVE-2026-24747: both in loading what weights_only should make safe.
    "torch": (2, 10),
    # CVE-2026-27489 and others: files outside the model are read.
    "onnx": (1, 21),
}


def findings(source: ast.Module) -> Iterator[str]:
    """What a module does that it must not, with its line."""
    for node in nodes(source):
        match node:
            case ast.Import(names=names):
                modules = [alias.name for alias in names]
            case ast.ImportFrom(module=str(module), level=0, names=names):
                modules = [f"{module}.{alias.name}" for alias in names]
            case ast.Call():
                yield from (f"line {node.lineno}: {what}" for what in _in_call(node))
                continue
            case _:
                continue
        for name in modules:
            if any(name == bad or name.startswith(f"{bad}.") for bad in RUN_WHAT_THEY_READ):
                yield f"line {node.lineno}: import {name}"


def _dotted(function: ast.expr) -> str:
    """The dotted name of a function; of a method of what has no name, a dot and its own name."""
    # `ast.unparse` would return more, but takes a second for all calls.
    if isinstance(function, ast.Attribute):
        return f"{_dotted(function.value)}.{function.attr}"
    return function.id if isinstance(function, ast.Name) else ""


def _in_call(call: ast.Call) -> Iterator[str]:
    called = _dotted(call.func)
    given = {word.arg: word.value for word in call.keywords if word.arg is not None}
    method = called.rpartition(".")[2]
    if called in CALLS or method in METHODS:
        yield called
    for word in ("shell", "allow_pickle", "enable_unsafe_deserialization"):
        if word in given and ast.unparse(given[word]) != "False":
            yield f"{called}({word}=...)"
    if method in ("extractall", "extract") and ast.unparse(given.get("filter", call)) != "'data'":
        yield f"{called} without filter='data'"


def test_nothing_unpickles_or_runs_what_it_reads() -> None:
    assert [(str(path), what) for path in SOURCES for what in findings(tree(path))] == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import cloudpickle as c",
        "from pickle import loads",
        "from multiprocessing import connection",
        "from multiprocessing.connection import Client",
        "import marshal, os",
        "def f():\n    import shelve",
        "eval(text)",
        "exec(text, {})",
        "__import__(name)",
        "yaml.load(file, Loader=yaml.SafeLoader)",
        "torch.load(path, weights_only=True)",
        "np.load(path, allow_pickle=True)",
        "subprocess.run(line, shell=True)",
        "socket.recv_pyobj()",
        "os.system(line)",
        "tar.extractall(path)",
        "tar.extractall(path, filter='fully_trusted')",
    ],
)
def test_the_search_finds(source: str) -> None:
    assert list(findings(ast.parse(source)))


@pytest.mark.parametrize(
    "source",
    [
        "import pickletools_of_ours",
        "re.compile('a')",
        "torch.compile(network)",
        "network.eval()",
        "yaml.safe_load(file)",
        "np.load(path, allow_pickle=False)",
        "subprocess.run(arguments, shell=False)",
        "tar.extractall(path, filter='data')",
    ],
)
def test_the_search_does_not_find(source: str) -> None:
    assert list(findings(ast.parse(source))) == []


IMPORTS_BY_NAME = {
    # This is the only module that imports what a document names.
    "arena/resolve.py": {"module_name"},
    # These lists are closed: PettingZoo's registry, and versioned modules of mpe2 and magent2.
    "arena/envs/registry.py": {"family.package", "name", "module"},
    "arena/export/champion.py": {"path", "f'mpe2.{mpe[1]}_v{mpe[2]}'"},
    # The names come from tables in the module itself.
    "arena/__init__.py": {"_HOMES[name]"},
    "arena/testing.py": {"_HOMES[name]"},
    # The names are modules of Arena's own package.
    "tools/web/making.py": {"module.name"},
    "populations/tracking.py": {"f'arena.metrics.{name}_tracker'"},
}


def last_name(node: ast.AST) -> str:
    """The name of a name or attribute; empty for anything else."""
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")


def test_one_place_imports_what_is_read() -> None:
    found: dict[str, set[str]] = {}
    for path in SOURCES:
        inner = nodes(tree(path))
        functions = {id(node.func) for node in inner if isinstance(node, ast.Call)}
        for node in inner:
            # If the function is passed on, its later arguments cannot be checked here.
            if id(node) not in functions:
                assert last_name(node) != "import_module", path
            if not isinstance(node, ast.Call) or not node.args:
                continue
            called = last_name(node.func)
            # Imports by path are forbidden, too: `runpy` and file loaders.
            assert called not in ("run_path", "run_module", "spec_from_file_location"), path
            if called == "import_module" and not isinstance(node.args[0], ast.Constant):
                found.setdefault(path.as_posix(), set()).add(ast.unparse(node.args[0]))
    assert found == IMPORTS_BY_NAME


@pytest.mark.parametrize("name", LEAST)
def test_packages_with_known_holes_are_too_old_for_us(name: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (line,) = [d for d in project["dependencies"] if re.match(rf"{name}[^a-z0-9_-]", d)]
    least = re.search(r">=([0-9.]+)", line)
    assert least is not None
    assert tuple(map(int, least[1].split("."))) >= LEAST[name]


def test_the_linter_looks_too() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    # The rules are about pickle, eval and yaml.load.
    assert {"S301", "S307", "S506"} <= set(settings["select"])
    assert not {"S301", "S307", "S506"} & set(settings["ignore"])


def test_what_is_promised_is_written_down() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    for heading in ("Trusted", "Semi-trusted", "Untrusted", "How to report", "not promised"):
        assert heading in text


def test_the_page_states_the_limits_that_the_code_has() -> None:
    rows = [
        line for line in (ROOT / "SECURITY.md").read_text().splitlines() if line.startswith("|")
    ]
    for what, *limits in (
        ("no message has come", unproven.MAX_UNPROVEN),
        ("connections | 256", connections.MAX_CONNECTIONS, connections.MAX_PER_ADDRESS),
        ("has to arrive", int(connections.WAIT_S)),
        ("headers", connections.MAX_HEADER_BYTES),
        ("a frame", codec.MAX_FRAME_BYTES),
        ("run.yaml", yaml_documents.MAX_BYTES, yaml_documents.MAX_DEPTH),
        ("manifest", checkpoint_files.MAX_MANIFEST_BYTES),
        ("another JSON document", files.MAX_DOCUMENT_BYTES),
        ("metrics.jsonl", files.MAX_LINE_BYTES),
    ):
        (row,) = [row for row in rows if what in row]
        assert {f"{limit:,}" for limit in limits} <= set(re.findall(r"\d[\d,]*\d|\d", row)), row
