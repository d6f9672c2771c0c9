from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tests.tools.conftest import player_run
from tools.play.game import PersonsGame
from tools.play.table import sit_down

GameOf = Callable[..., PersonsGame]


@pytest.fixture
def game_of() -> Iterator[GameOf]:
    """Begin games against a player, which are closed after the test."""
    with ExitStack() as stack:

        def game_of(player: object, *, seed: int = 3, **how: Any) -> PersonsGame:
            game = PersonsGame(sit_down(str(player), **how), seed=seed)
            return stack.enter_context(closing(game))

        yield game_of


@pytest.fixture(scope="session")
def original_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Connect Four of PettingZoo, not its batched game, with a recurrent policy."""
    run = player_run(
        tmp_path_factory.mktemp("runs") / "original",
        "classic/connect_four-v3",
        backend="pettingzoo",
        network={"core": "lstm"},
    )
    latest = run.checkpoint("player/p000", agent_steps=1_000, seed=5)
    run.policy("player/p000", index=0, latest=latest)
    return run.write()
