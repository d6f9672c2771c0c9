"""Writing of a game that a person played to a file (`tools.replay.saved`).

Tests: `tests/tools/play/test_saving.py`.
"""

from __future__ import annotations

import base64
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from arena.errors import ConfigError
from arena.files import words_of
from arena.matches.tally import mean_of_agents
from arena.types import MAX_GAME_BYTES
from populations.errors import StorageError

from ..export.card import environment_of
from ..replay.saved import SavedGame

if TYPE_CHECKING:
    from .game import PersonsGame


def saved(game: PersonsGame) -> bytes:
    """Return a game as a file has it.

    Raises:
        ConfigError: If it is longer than a game that is kept may be.
    """
    table = game.table
    seats = table.game.seats
    packed = zlib.compress(
        b"".join(
            rows.contiguous().numpy().tobytes() for step in game.steps for rows in step.values()
        )
    )
    if len(packed) + len(game.shown) > MAX_GAME_BYTES:
        raise ConfigError(f"a game that is saved has at most {MAX_GAME_BYTES} bytes of actions")
    means = game.returns @ mean_of_agents(seats, agents=table.game.spec.agents)
    document = SavedGame(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        config=table.game.environment,
        environment=environment_of(table.game),
        agent_ids=table.game.agent_ids,
        players=table.players,
        weights=tuple(
            None
            if seat.agents == (table.agent,) or seat.population not in game.weights
            else str(game.weights[seat.population].digest)
            for seat in seats
        ),
        seed=game.seed,
        steps=len(game.steps),
        is_over=game.is_over,
        points=game.points if len(game.points) > 1 else (),
        returns=tuple(means.tolist()),
        actions=base64.b64encode(packed),
        shown=base64.b64encode(game.shown),
    )
    return f"{document.model_dump_json(indent=1)}\n".encode()


def save(game: PersonsGame, path: Path) -> None:
    """Write a game to a new file.

    Raises:
        StorageError: If the file is there already, or the disk refuses.
    """
    try:
        with path.open("xb") as file:
            file.write(saved(game))
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {words_of(error)}") from error
