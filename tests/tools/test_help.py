"""Help texts of the commands: a plain noun phrase or an imperative on each line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
import typer

from tests.support import exit_code

MAIN = import_module("populations.commands.main")
OPAQUE = re.compile(r"(Of|Who|Whose|What|Where)\b")


def commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Each command and group, by the words that start it."""
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, f"{path} {name}")


COMMANDS = dict(commands(typer.main.get_command(MAIN.app), "arena"))


def opaque_lines(command: Any) -> list[str]:
    """Parameters whose help is missing or begins with a word that stands for a noun."""
    helps = {str(one.name): getattr(one, "help", None) for one in command.params}
    helps.pop("help", None)
    return [name for name, text in helps.items() if not text or OPAQUE.match(text)]


def test_all_commands_are_found() -> None:
    assert {"arena launch", "arena league", "arena envs check", "arena bench"} <= COMMANDS.keys()


@pytest.mark.parametrize("path", COMMANDS)
def test_each_parameter_has_a_plain_line(path: str) -> None:
    assert opaque_lines(COMMANDS[path]) == []


@pytest.mark.parametrize("path", COMMANDS)
def test_each_command_says_what_it_does(path: str) -> None:
    assert COMMANDS[path].help
    assert not OPAQUE.match(COMMANDS[path].help)


IMPORTING = {"envs check", "simulate", "bench", "learner"}
"""Commands that import what the user names; those that import what a file names take --trust."""


def test_commands_that_import_code_take_its_directory_in_one_way() -> None:
    named = {
        path: {option: one.help for one in command.params for option in one.opts}
        for path, command in COMMANDS.items()
    }
    importing = {path for path, options in named.items() if "--trust" in options}
    importing |= {f"arena {words}" for words in IMPORTING}
    assert {path for path, options in named.items() if "--code" in options} == importing
    assert len({named[path]["--code"] for path in importing}) == 1


@pytest.mark.parametrize(
    "text", ["Of each measurement.", "Where; default: RUN.", "What to show.", ""]
)
def test_an_opaque_line_is_found(text: str) -> None:
    app = typer.Typer()

    @app.command()
    def rate(seed: int = typer.Option(1, help=text)) -> None:
        """Rate."""

    assert opaque_lines(typer.main.get_command(app)) == ["seed"]


@pytest.mark.parametrize("path", [path for path in COMMANDS if path not in ("arena", "arena envs")])
def test_terminals_wrap_paragraphs(path: str) -> None:
    for line in COMMANDS[path].help.split("\n\n"):
        assert "\n" not in line


def test_help_of_a_command_names_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    exit_code("launch", "--help")
    text = capsys.readouterr().out
    assert "[CONFIG]" in text
    assert "[KEY=VALUE]..." in text
    assert "--config" not in text
