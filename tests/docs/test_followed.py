"""Tutorials are followed word for word in an empty directory; code of how-to pages runs."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, Block, all_blocks, blocks, commands
from tests.support import run_process

# Of the notebook, tests/tools/api runs the same calls.
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
    # What the tests themselves put on the path is not on a reader's.
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
    # A rule that raises is replaced by another, with one of these.
    for failed in ("explore_failed", "exploit_failed", "thinning_failed", "alert,"):
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
