"""Texts that are safe to show, and help texts that a terminal can wrap."""

from __future__ import annotations

import pytest

from populations.views.texts import one_line, plain
from tools.terminal.output import paragraphs


@pytest.mark.parametrize(
    ("text", "shown"),
    [("café", "café"), ("a\x1b[31m", "a\\x1b[31m"), ("a\u202eb", "a\\u202eb"), ("a\nb", "a\\nb")],
)
def test_characters_that_control_a_terminal_are_written_out(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_some_characters_may_stay() -> None:
    assert plain("a\tb\x1b\n", keep="\t\n") == "a\tb\\x1b\n"


def test_white_space_becomes_one_blank() -> None:
    assert one_line(" a\n\n b\tc ") == "a b c"
    assert one_line("abcdef", max_chars=3) == "abc..."
    assert one_line("abc", max_chars=3) == "abc"


def test_each_paragraph_is_one_line() -> None:
    def command() -> None:
        """Do something
        long.

        And
        more.
        """

    assert paragraphs(command) == "Do something long.\n\nAnd more."


def test_no_docstring_is_no_help() -> None:
    def command() -> None: ...

    assert paragraphs(command) == ""
