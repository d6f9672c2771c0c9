"""Measure how many observations a loaded player decides about in a second.

    python -m experiments.speed.loaded_players runs/demo/champion runs/demo

Prints, for each PLAYER and size of a batch, thousands of decisions (``act``, greedy) per second of
CPU time, as the best of some rounds, and the share of actions that are those of one observation at
a time. Of an export also those of its own ``champion.py``, one at a time. The observations are
random ones of the player's environment.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import arena
from arena.envs.spaces.actions import ActionLayout
from arena.envs.spaces.observations import ObservationLayout
from arena.export.graph import random_feeds
from tools.players.resolve import resolve_player

BATCHES = (1, 32, 1_000, 10_000)
ROUNDS = 3


def observations(name: str, num_rows: int) -> tuple[Any, Any, str]:
    """Return random observations of a player's only population, masks, and one of its agents.

    Raises:
        ConfigError: If there is no such player.
    """
    game = resolve_player(name).game
    assert game is not None, "bots have no game"
    (agents,) = game.populations.values()
    facts, rng = game.spec.agent_specs[agents[0]], np.random.default_rng(1)
    layout = ObservationLayout.from_json(facts.observation)
    feeds = random_feeds(layout, num_rows, rng=rng)
    # Of a space that is no Dict there is one part; larger ones are not compared here.
    (rows,) = feeds.values()
    if facts.mask is None:
        return rows, None, agents[0]
    actions = ActionLayout.from_json(facts.action, continuous="squashed")
    masks = rng.random((num_rows, actions.num_logits)) < 0.6
    masks[:, np.cumsum([0, *actions.branches[:-1]])] = True
    return rows, masks, agents[0]


def acts(player: Any, rows: Any, masks: Any, agent: str, *, size: int) -> list[Any]:
    """Return the actions of all rows, in batches; a batch of one is one observation."""
    chosen: list[Any] = []
    for at in range(0, len(rows), size):
        part = slice(at, at + size) if size > 1 else at
        mask = None if masks is None else masks[part]
        answer = player.act(rows[part], mask, agent=agent)
        chosen.extend(answer if size > 1 else [answer])
    return chosen


def measured(
    player: Any, rows: Any, masks: Any, agent: str, *, size: int
) -> tuple[list[Any], float]:
    """Return actions, and thousands of them per second of CPU time, the best of `ROUNDS`."""
    best_s, found = float("inf"), list[Any]()
    for _ in range(ROUNDS):
        began_s = time.process_time()
        found = acts(player, rows, masks, agent, size=size)
        best_s = min(best_s, time.process_time() - began_s)
    return found, round(len(rows) / best_s / 1_000, 2)


def champion_module(directory: Path) -> ModuleType:
    """Import the ``champion.py`` of an export that the caller trusts."""
    spec = importlib.util.spec_from_file_location("champion_of_export", directory / "champion.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look their module up.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def main(argv: Sequence[str] | None = None) -> int:
    """Print one line of JSON for each player and size of a batch."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("players", nargs="+", help="players of one population, no bots")
    parser.add_argument("--rows", type=int, default=10_000, help="observations to decide about")
    options = parser.parse_args(argv)
    for name in options.players:
        given = observations(name, options.rows)
        loaded: list[tuple[str, Any, tuple[int, ...]]] = [(name, arena.load(name), BATCHES)]
        if (Path(name) / "champion.py").is_file():
            champion = champion_module(Path(name)).Champion(name)
            loaded.append((f"{name}/champion.py", champion, BATCHES[:1]))
        expected = acts(loaded[0][1], *given, size=1)
        for label, player, sizes in loaded:
            for size in sizes:
                found, thousand_per_s = measured(player, *given, size=size)
                same = [np.array_equal(*pair) for pair in zip(found, expected, strict=True)]
                document = {
                    "player": label,
                    "batch": size,
                    "thousand_per_s": thousand_per_s,
                    "equal": float(np.mean(same)),
                }
                sys.stdout.write(json.dumps(document) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
