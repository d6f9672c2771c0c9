"""Arena's commands, as a user runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

TACTICAL = "bot:arena.bots.connect_four:Tactical"
"""Player of Connect Four that looks one move ahead."""

COMMAND = (sys.executable, "-m", "populations.commands.main")


def arena(*arguments: str | Path) -> str:
    """Run a command that must succeed, and return its standard output."""
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def launch(config: str | Path, run: Path, *, seed: int, overrides: tuple[str, ...] = ()) -> None:
    """Train a preset or a file to its end."""
    arena("launch", config, f"seed={seed}", *overrides, "--run-dir", run)


def match_counts(run: Path, bot: str, *, matches: int) -> dict[str, list[int]]:
    """Return the wins, draws and losses of a run's champion, playing greedily, against a bot.

    Returns:
        By seat of the champion, ``first`` and ``second``, each of ``matches`` matches.
    """
    text = arena("evaluate", run, bot, "--matches", str(matches), "--greedy", "--json")
    home, away = json.loads(text)["pairs"]
    return {
        "first": [home["wins"], home["draws"], home["losses"]],
        "second": [away["losses"], away["draws"], away["wins"]],
    }
