"""File of a game that a person played: written by ``arena play``, shown by ``arena replay FILE``.

It has what a kept game of a run has: seed, actions and digests of what was shown, and the
environment as an export's card describes it. A file may come from anywhere, so all of it is checked
when it is read, and the game is checked step by step as it is played again.

Tests: `tests/tools/play/test_saved.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Base64Bytes, ConfigDict, Field, ValidationError, model_validator

from arena.config import EnvironmentConfig, Model
from arena.envs.chance import MAX_SEED
from arena.errors import ConfigError
from arena.export.card import CardEnvironment
from arena.files import read_regular, words_of
from arena.rules import broken_rules
from arena.types import SHOWN_BYTES, Entrant, PlayerId
from populations.records.rows import GameRow

from ..players.game import Game

MAX_FILE_BYTES = 16 << 20

Text = Annotated[str, Field(max_length=4096)]


class SavedGame(Model):
    """Game of a person.

    Attributes:
        arena_game: Version of this form.
        created: Time in UTC, ISO 8601.
        config: Configuration of the environment.
        environment: Its facts, its sides and the seats of this game.
        agent_ids: Populations whose observations end with the agent.
        players: PLAYER of each seat, ``you`` for the person.
        weights: Digest of the weights in each seat; None: there are none.
        seed: Seed of an environment of which this is the first episode.
        steps: Calls of ``step``.
        is_over: Whether it was played to its end.
        points: Points of each side; empty in cooperation and before the end.
        returns: Mean return of the agents of each seat.
        actions: Actions of each step, as in `arena.types.Game`.
        shown: Digests, as in `arena.types.Game`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    arena_game: Literal[1] = 1
    created: Text
    config: EnvironmentConfig
    environment: CardEnvironment
    agent_ids: tuple[Text, ...]
    players: tuple[Text, ...]
    weights: tuple[Text | None, ...]
    seed: int = Field(ge=0, lt=MAX_SEED)
    steps: int = Field(ge=0)
    is_over: bool
    points: tuple[float, ...]
    returns: tuple[float, ...]
    actions: Base64Bytes
    shown: Base64Bytes

    @model_validator(mode="after")
    def _fit(self) -> SavedGame:
        seats = self.environment.seats
        for values in (self.players, self.weights, self.returns):
            if len(values) != len(seats):
                raise ValueError(
                    f"players, weights and returns must have one for each of {len(seats)} seats"
                )
        if self.points and len(self.points) != len(self.environment.sides):
            raise ValueError("points must have one for each side")
        if len(self.shown) != SHOWN_BYTES * (self.steps + 1):
            raise ValueError(f"shown must have {SHOWN_BYTES} bytes for the start and each step")
        return self

    @property
    def row(self) -> GameRow:
        """The game as a run would keep it."""
        return GameRow(
            game=self.created,
            time=self.created,
            seats=tuple(range(len(self.players))),
            players=tuple(map(PlayerId, self.players)),
            entrants=tuple(Entrant(one or "") for one in self.weights),
            keys=("",) * len(self.players),
            seed=self.seed,
            steps=self.steps,
            points=self.points,
            returns=self.returns,
            actions=self.actions,
            shown=self.shown,
        )


def read_game(path: Path, *, trust: bool) -> tuple[SavedGame, Game]:
    """Read a file of `save`.

    Args:
        path: The file.
        trust: Whether code that it names may be imported.

    Raises:
        ConfigError: If it is none.
        NotTrusted: If it names code that nobody vouches for.
    """
    from populations.config.trust import word_for_card

    try:
        document = SavedGame.model_validate_json(read_regular(path, limit_bytes=MAX_FILE_BYTES))
    except ValidationError as error:
        rule = broken_rules(error)[0]
        raise ConfigError(f"{path} is no game that arena play has saved: {rule}") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {words_of(error)}") from error
    facts, config = document.environment, document.config
    named = {"environment": config.model_dump(mode="json"), "spec": {"id": facts.id}}
    return document, Game(
        environment=config,
        spec=facts.spec,
        sides=facts.sides,
        seats=facts.seats,
        populations=facts.populations,
        word=word_for_card(named, path, trust=trust),
        is_exported=True,
        agent_ids=document.agent_ids,
    )
