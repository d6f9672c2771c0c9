"""Options of `arena evaluate --into`, and what is refused before anything is changed."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from tests.support import exit_code

into_run: Any = importlib.import_module("populations.commands.evaluate.command")
main: Any = importlib.import_module("populations.commands.main").main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["RUN", "--into", "RUN", "--for", "soon"], "--for must be a time above 0"),
        (["RUN", "--into", "RUN", "--for", "2m"], "there is no run in RUN"),
        (["RUN", "--into", "RUN"], "--into RUN needs --for"),
        (["RUN", "--for", "2m"], "--for 2m needs --into"),
        (["RUN", "bot:random", "--into", "RUN", "--for", "2m"], "RUN must be the only PLAYER"),
        (["RUN:player/p000", "--into", "RUN", "--for", "2m"], "RUN must be the only PLAYER"),
        (["RUN", "--into", "RUN", "--for", "2m", "--greedy", "--matches", "100"],
         "--into takes no --matches, --greedy"),
    ],
)  # fmt: skip
def test_bad_options_are_one_line_and_nothing_is_made(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = exit_code("evaluate", *arguments)
    said = capsys.readouterr()
    assert ended == 2
    assert (said.out, len(said.err.splitlines())) == ("", 1)
    assert message in said.err
    assert not list(tmp_path.iterdir())
