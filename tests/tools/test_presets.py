"""`arena presets`: what comes with Arena, from an installed wheel too."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from populations.preset_files import preset_names
from tests.support import exit_code

Command = Callable[..., dict[str, Any]]
ROOT = Path(__file__).parents[2]


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert exit_code(*arguments) == 0
    return capsys.readouterr().out


def test_every_preset_is_listed_with_a_sentence(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = {one["name"]: one["about"] for one in command("presets", "--json")["presets"]}
    assert sorted(listed) == preset_names()
    assert "default" in listed
    for about in listed.values():
        assert re.fullmatch(r"[A-Z].{10,150}\.", about)
        assert about.count(". ") == 0
    lines = printed(capsys, "presets").splitlines()
    assert [line.split()[0] for line in lines] == sorted(listed)


@pytest.mark.parametrize("name", ["default", "tictactoe"])
def test_a_preset_is_printed_as_it_is(
    name: str, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "configs" / f"{name}.yaml").read_text()
    assert printed(capsys, "presets", name) == text
    assert command("presets", name, "--json") == {"schema": 1, "name": name, "text": text}


def test_a_preset_that_there_is_not_names_those_that_are(command: Command) -> None:
    error = command("presets", "tictacto", code=2)["error"]
    assert "did you mean 'tictactoe'?" in error
    assert "leduc_poker" in error
    assert "there is no preset" in command("presets", "configs/tictactoe.yaml", code=2)["error"]


def messages(path: Path) -> Iterator[tuple[int, str]]:
    """Texts in a module that are no docstrings."""
    tree = ast.parse(path.read_text())
    docstrings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in docstrings:
            yield node.lineno, str(node.value)


@pytest.mark.slow
def test_messages_point_to_nothing_that_a_wheel_or_a_clone_lacks() -> None:
    """A wheel has no README and no folder configs; a clone's extras are on no index."""
    lacking = re.compile(r"README|configs/|arena-league\[")
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for top in ("arena", "populations", "tools")
        for path in (ROOT / top).rglob("*.py")
        for line, text in messages(path)
        if lacking.search(text)
    ]
    assert found == []
