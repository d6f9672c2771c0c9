"""Links lead somewhere; commands, YAML and Python of all documents are right."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shlex
import sys
from importlib import import_module
from pathlib import Path

import pytest

from arena.errors import ConfigError
from populations.config.run_config import load_config
from populations.yaml_documents import read_document
from tests.docs.command_lines import problem_of
from tests.docs.pages import (
    DOCS,
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
from tests.support import run_process

MINIMAL = "environment: {id: classic/tictactoe-v3}\n"
PAGES = pages()


def broken_links(page: Path) -> list[str]:
    """Return the links of a page that lead nowhere."""
    broken = []
    for link in links(page):
        target, _, anchor = link.partition("#")
        file = (page.parent / target).resolve() if target else page
        # The build copies the dated results beside their index.
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
    # The module `champion` comes with an export; the others have environments of their own.
    brought = {"champion", "kaggle_environments", "stable_baselines3"}
    files = brought | {*(one.file.removesuffix(".py") for one in blocks(block.page))}
    assert unresolved(block.text, files) == []


def test_an_import_of_nothing_is_found() -> None:
    text = "from arena.errors import ConfigError, Gone\nimport arena.gone\nimport nim\n"
    assert unresolved(text, {"nim"}) == ["arena.errors.Gone", "arena.gone"]
    assert len(PYTHON) > 12


# The notebook is missing here, because tests/tools/api runs the same calls.
TUTORIALS = (
    "first-league", "own-environment", "hidden-information", "cooperation", "reading-a-league",
    "five-questions",
)  # fmt: skip
FILES = {block.file: block for block in all_blocks("python") if block.file}
OWN_CODE = [
    block for block in all_blocks("yaml")
    if block.page.parent.name == "how-to" and any(f"{name.removesuffix('.py')}:" in block.text
                                                  for name in FILES)
]  # fmt: skip
SHORT = (
    "stop={agent_steps_per_policy: 4096}", "evaluation.share=0.2", "assignment.agent_steps=1024",
    "ghosts.every_agent_steps=1024", "learners=1", "device=cpu",
)  # fmt: skip


def follow(command: str, directory: Path, *, timeout_s: float) -> str:
    """Run a command as a reader would, and return its output. Fails on another exit code than 0."""
    programs = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    # The reader of a page does not have the path that the tests set.
    environment.pop("PYTHONPATH", None)
    done = run_process(shlex.split(command), cwd=directory, env=environment, timeout_s=timeout_s)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def save(page: Path, directory: Path) -> None:
    """Save the files of a page, as its reader does."""
    for block in blocks(page):
        if block.file:
            (directory / block.file).write_text(block.text)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.integration
@pytest.mark.timeout(1800)
@pytest.mark.xdist_group("processes")
@pytest.mark.parametrize("name", TUTORIALS)
def test_a_tutorial_is_followed(name: str, tmp_path: Path) -> None:
    page = DOCS / "tutorials" / f"{name}.md"
    save(page, tmp_path)
    found = [line for one in blocks(page) if one.language == "console" for line in commands(one)]
    assert found
    for command in found:
        output = follow(command, tmp_path, timeout_s=900)
        if command.startswith(("arena league", "arena evaluate")):
            words = ("player", "pairs", "agent", "plot of", "learners")
            assert any(word in output for word in words)


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(300)
@pytest.mark.xdist_group("processes")
@pytest.mark.parametrize("block", OWN_CODE, ids=lambda block: block.page.stem)
def test_code_of_a_how_to_page_runs(block: Block, tmp_path: Path) -> None:
    for file, one in FILES.items():
        (tmp_path / file).write_text(one.text)
    (tmp_path / "page.yaml").write_text(block.text)
    overrides = " ".join(map(shlex.quote, SHORT))
    follow(f"arena launch page.yaml --run-dir run {overrides}", tmp_path, timeout_s=280)
    events = follow("arena league run events --csv", tmp_path, timeout_s=60)
    assert "run_finished" in events
    # A rule that raises an error is replaced, which leaves one of these events.
    for failed in ("explore_failed", "exploit_failed", "matchmaking_failed", "alert,"):
        assert failed not in events, events


CHECKS = [
    block for block in all_blocks("python")
    if block.page.parent.name == "how-to" and "from arena.testing import" in block.text
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.xdist_group("processes")
@pytest.mark.parametrize("block", CHECKS, ids=lambda block: block.page.stem)
def test_code_of_a_how_to_page_keeps_its_contract(block: Block, tmp_path: Path) -> None:
    for file, one in FILES.items():
        (tmp_path / file).write_text(one.text)
    (tmp_path / "check.py").write_text(block.text)
    follow("python check.py", tmp_path, timeout_s=280)


@pytest.mark.integration
@pytest.mark.xdist_group("processes")
def test_the_drawing_of_a_how_to_page_is_what_it_shows(tmp_path: Path) -> None:
    for file, one in FILES.items():
        (tmp_path / file).write_text(one.text)
    (shown,) = [one for one in blocks(DOCS / "how-to" / "drawing.md") if one.language == "console"]
    (command,) = commands(shown)
    printed = shown.text.partition("\n")[2]
    assert follow(command, tmp_path, timeout_s=120).strip() == printed.strip()
    assert (tmp_path / "nim.svg").read_text().startswith("<svg")


def test_checks_of_how_to_pages_are_found() -> None:
    assert len(CHECKS) == 9


def test_the_code_of_how_to_pages_is_found() -> None:
    assert {block.page.stem for block in OWN_CODE} == {
        "matchmaker", "pbt-rule", "bot", "network", "algorithm", "batched-game", "sink", "hook",
        "thinning",
    }  # fmt: skip


def test_a_file_is_the_same_on_every_page() -> None:
    different = [
        str(block)
        for block in all_blocks("python")
        if block.file and block.text.strip() not in FILES[block.file].text
        and FILES[block.file].text.strip() not in block.text
    ]  # fmt: skip
    assert different == []
