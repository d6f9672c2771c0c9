"""Writing of a game that a person played to a file (`tools.replay.saved`).

Tests: `tests/tools/play/test_saving.py`.
"""

from __future__ import annotations

import zlib
from datetime import UTC, datetime
from pathlib import Path

from arena.codec import to_json
from arena.files import words_of
from arena.matches.tally import mean_of_agents
from arena.types import MAX_GAME_BYTES, Entrant, PlayerId
from populations.errors import StorageError
from populations.records.rows import GameRow

from ..export.card import environment_of
from ..replay.saved import SavedGame
from .game import PersonsGame, Refused
from .table import PERSON


def saved(game: PersonsGame) -> bytes:
    """Return a game as a file has it.

    Raises:
        Refused: If it is longer than a game that is kept may be.
    """
    table, seats = game.table, game.table.game.seats
    digests = {name: one.digest for name, one in game.weights.items()}
    actions = (rows for step in game.actions for rows in step.values())
    created = datetime.now(UTC).isoformat(timespec="seconds")
    row = GameRow(
        game=created,
        time=created,
        seats=tuple(range(len(seats))),
        players=tuple(map(PlayerId, table.players)),
        entrants=tuple(
            Entrant("" if player == PERSON else digests.get(seat.population, ""))
            for seat, player in zip(seats, table.players, strict=True)
        ),
        keys=("",) * len(seats),
        pairing=0,
        seed=game.seed,
        steps=len(game.actions),
        points=game.points if len(game.points) > 1 else (),
        returns=tuple((game.returns @ mean_of_agents(seats, agents=game.agents)).tolist()),
        actions=zlib.compress(b"".join(one.contiguous().numpy().tobytes() for one in actions)),
        shown=b"".join(game.shown),
    )
    if row.size_bytes > MAX_GAME_BYTES:
        raise Refused(
            f"a game that is saved has at most {MAX_GAME_BYTES} bytes, this one {row.size_bytes}"
        )
    document = SavedGame(
        config=table.game.environment,
        environment=environment_of(table.game),
        agent_ids=table.game.agent_ids,
        is_over=game.is_over,
        row=row,
    )
    return f"{to_json(document, indent=1)}\n".encode()


def save(game: PersonsGame, path: Path) -> None:
    """Write a game to a new file.

    Raises:
        Refused: If it is longer than a game that is kept may be.
        StorageError: If the file is there already, or the disk refuses.
    """
    data = saved(game)
    try:
        with path.open("xb") as file:
            file.write(data)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {words_of(error)}") from error
