"""File of a game that a person played: written by ``arena play``, shown by ``arena replay FILE``.

It has a game as a run keeps it, and the environment as an export's card describes it. A file may
come from anywhere, so all of it is checked when it is read, and the game is checked step by step as
it is played again.

Tests: `tests/tools/play/test_saving.py`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

from arena.codec import from_json
from arena.config import EnvironmentConfig
from arena.envs.chance import MAX_SEED
from arena.errors import ConfigError, DecodeError
from arena.export.card import CardEnvironment
from arena.files import read_regular, words_of
from arena.types import SHOWN_BYTES, Document
from populations.records.rows import GameRow

from ..players.game import Game
from ..players.resolve import game_of_card

MAX_FILE_BYTES = 16 << 20


class SavedGame(Document, frozen=True, kw_only=True):
    """Game of a person.

    Attributes:
        arena_game: Version of this form.
        config: Configuration of the environment.
        environment: Its facts, its sides and the seats of this game.
        agent_ids: Populations whose observations end with the agent.
        is_over: Whether it was played to its end.
        row: The game. Its players are named as on the command line, ``you`` for the person, and its
            entrants are digests of weights; empty where there are none.
    """

    arena_game: Literal[1] = 1
    config: EnvironmentConfig
    environment: CardEnvironment
    agent_ids: tuple[str, ...]
    is_over: bool
    row: GameRow

    def __post_init__(self) -> None:
        """Refuse a game whose parts do not fit each other."""
        row, number = self.row, len(self.environment.seats)
        each = (row.seats, row.players, row.entrants, row.keys, row.returns)
        if row.seats != tuple(range(number)) or any(len(one) != number for one in each):
            raise ValueError(f"the game must have a player for each of {number} seats")
        if len(row.points) not in (0, len(self.environment.sides)):
            raise ValueError("points must have one for each side")
        if not 0 <= row.seed < MAX_SEED:
            raise ValueError(f"seed must be in [0, 2**63), got {row.seed}")
        if row.steps < 0 or len(row.shown) != SHOWN_BYTES * (row.steps + 1):
            raise ValueError(f"shown must have {SHOWN_BYTES} bytes for the start and each step")


def read_game(path: Path, *, trust: bool) -> tuple[SavedGame, Game]:
    """Read a file that `tools.play.saving` wrote.

    Args:
        path: The file.
        trust: Whether code that it names may be imported.

    Raises:
        ConfigError: If it is none.
    """
    from populations.config.trust import word_for_card

    try:
        document = from_json(read_regular(path, limit_bytes=MAX_FILE_BYTES), SavedGame)
    except DecodeError as error:
        raise ConfigError(f"{path} is no game that arena play has saved: {error}") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {words_of(error)}") from error
    facts, config = document.environment, document.config
    named = {"environment": config.model_dump(mode="json"), "spec": {"id": facts.id}}
    word = word_for_card(named, path, trust=trust)
    return document, replace(game_of_card(facts, config, word=word), agent_ids=document.agent_ids)
