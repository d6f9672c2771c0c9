"""Links lead somewhere; commands, YAML and Python of all documents are right."""

from __future__ import annotations

import ast
import importlib.util
import re
from importlib import import_module
from pathlib import Path

import pytest

from arena.errors import ConfigError
from populations.config.run_config import load_config
from populations.yaml_documents import read_document
from tests.docs.command_lines import problem_of
from tests.docs.pages import (
    MENTION,
    ROOT,
    Block,
    all_blocks,
    anchors,
    blocks,
    commands,
    links,
    pages,
)

MINIMAL = "environment: {id: classic/tictactoe-v3}\n"
PAGES = pages()


def broken_links(page: Path) -> list[str]:
    """Return the links of a page that lead nowhere."""
    broken = []
    for link in links(page):
        target, _, anchor = link.partition("#")
        file = (page.parent / target).resolve() if target else page
        # The dated figures are copied beside their index when the documents are built.
        copied = ROOT / "benchmarks" / file.name
        if file.parent == ROOT / "docs/benchmarks" and copied.exists():
            file = copied
        is_there = file.exists() and file.is_relative_to(ROOT)
        if not is_there or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            broken.append(link)
    return broken


def test_all_pages_are_found() -> None:
    names = {str(path.relative_to(ROOT)) for path in PAGES}
    assert {"README.md", "docs/index.md", "docs/tutorials/first-league.md"} <= names
    assert {"arena/envs/README.md", "docs/decisions/wire.md"} <= names
    assert len(names) > 80


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = ROOT / "docs" / "no_such_page.md"
    assert not page.exists()
    page.write_text("# A title\n[a](#a-title) [b](gone.md) [c](#gone) [d](index.md#gone)\n")
    try:
        assert broken_links(page) == ["gone.md", "#gone", "index.md#gone"]
    finally:
        page.unlink()


# Commands.


def commands_of(page: Path) -> list[tuple[Block, str]]:
    """Return the commands of a page, each with its block."""
    return [
        (block, line)
        for block in blocks(page)
        if block.language in ("console", "sh", "", MENTION)
        for line in commands(block)
        if re.search(r"(^|/| )arena ", line) and "CONFIG" not in line
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_are_those_that_there_are(page: Path) -> None:
    problems = [
        f"{block}: {command}: {problem}"
        for block, command in commands_of(page)
        if (problem := problem_of(command, is_complete=block.language != MENTION))
    ]
    assert problems == []


def test_many_commands_are_found() -> None:
    assert sum(len(commands_of(page)) for page in PAGES) > 100


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("arena laumch x", "there is no command arena laumch"),
        ("arena launch x --run-dri y", "arena launch has no option --run-dri"),
        ("arena launch x --run-dir", "arena launch --run-dir needs a value"),
        ("arena league", "arena league needs 1 arguments"),
        ("arena launch tictactoe pbt.min_mtches=3", "unknown key pbt.min_mtches"),
        ("X=1 try/bin/arena league runs/a events --json | head", ""),
        ("arena envs check a:b --write b.yaml  # a comment", ""),
    ],
)
def test_a_wrong_command_is_found(command: str, problem: str) -> None:
    assert problem in problem_of(command)
    assert bool(problem) == bool(problem_of(command))


# YAML.

YAML = [block for block in all_blocks("yaml") if ".github" not in str(block.page)]


@pytest.mark.parametrize("block", YAML, ids=str)
def test_yaml_is_a_configuration(block: Block, tmp_path: Path) -> None:
    document = read_document(block.text.encode(), name=str(block))
    assert isinstance(document, dict)
    text = block.text if "environment" in document else MINIMAL + block.text
    path = tmp_path / "page.yaml"
    path.write_text(text)
    load_config(path)


def test_yaml_with_an_unknown_key_is_found(tmp_path: Path) -> None:
    path = tmp_path / "page.yaml"
    path.write_text(MINIMAL + "stop: {duration: 3}\n")
    with pytest.raises(ConfigError, match=r"stop\.duration"):
        load_config(path)
    assert len(YAML) > 15


# Python.

PYTHON = all_blocks("python")


def unresolved(text: str, files: set[str]) -> list[str]:
    """Return the names of arena and populations that a text imports and that there are not."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            modules = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            modules = [(node.module, alias.name) for alias in node.names]
        else:
            continue
        for module, name in modules:
            if module.split(".")[0] in ("arena", "populations"):
                if importlib.util.find_spec(module) is None:
                    found.append(module)
                elif name and not hasattr(import_module(module), name):
                    found.append(f"{module}.{name}")
            elif module.split(".")[0] not in files and importlib.util.find_spec(module) is None:
                found.append(module)
    return found


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_python_compiles_and_its_imports_are_there(block: Block) -> None:
    compile(block.text, str(block), "exec")
    # `champion` is the module that an export brings; others live in environments of their own.
    brought = {"champion", "kaggle_environments", "stable_baselines3"}
    files = brought | {*(one.file.removesuffix(".py") for one in blocks(block.page))}
    assert unresolved(block.text, files) == []


def test_an_import_of_nothing_is_found() -> None:
    text = "from arena.errors import ConfigError, Gone\nimport arena.gone\nimport nim\n"
    assert unresolved(text, {"nim"}) == ["arena.errors.Gone", "arena.gone"]
    assert len(PYTHON) > 12
