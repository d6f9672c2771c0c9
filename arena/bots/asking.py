"""Calls of users' bots, and the check of their actions. Torch-free.

Shapes: N rows, n choices, K numbers of an action.

Tests: `tests/arena/matches/test_actors.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from arena.bots.ids import FORM, check_options, parse_bot
from arena.environment_spec import MaskPlace
from arena.errors import ConfigError
from arena.processes.settings import SETTINGS
from arena.resolve import resolve
from arena.spaces import ActionLayout
from arena.types import BOT_PREFIX
from arena.users_code import users_code


class Bot(Protocol):
    """An object of the class in ``bot:package.module:Class(depth=3)``, made with the keywords.

    It sees and answers what the environment gives and takes: arrays with a leading axis of N rows,
    nested in dictionaries and tuples as the spaces are. Its decisions depend on nothing but its
    arguments, its calls, and ``rng`` or the seeds of `reset`: then a seed repeats a match.

    One object may play several games at once, several seats of a game too, and one set of games
    after another. A bot with a state keeps it by game and agent, and has a method
    ``reset(game, *, seat, agents, seed)``, which drops it: see `Resetting`.
    """

    def act(
        self,
        observation: Any,  # noqa: ANN401
        action_mask: npt.NDArray[np.bool_] | None,
        *,
        agent: str,
        rng: np.random.Generator,
    ) -> Any:  # noqa: ANN401
        """Choose one action per row.

        A parameter ``games`` beside these, where there is one, gets the index of the game of each
        row: of the environment in the batch. int64 [N].

        Args:
            observation: As the environment gives it, with its action mask where that is a part of
                it, and a leading axis of N rows.
            action_mask: True for legal choices; where there are several categories, their masks
                side by side. [N, n], or None.
            agent: Name of the deciding agent.
            rng: The only source of randomness beside the seeds of ``reset``.

        Returns:
            As the environment takes it, with a leading axis of N rows: for Discrete integers [N],
            for MultiDiscrete integers [N, branches], for a Box numbers [N, ...].
        """


class Resetting(Protocol):
    """A bot with a method `reset`, called when it begins to play in a game."""

    def reset(self, game: int, *, seat: str, agents: tuple[str, ...], seed: int) -> None:
        """Drop the state of a game's agents.

        Called before the first decision of a seat in each episode, and again where the seat is
        taken up in the middle of one.

        Args:
            game: Index of the environment in the batch.
            seat: Name of the seat.
            agents: Agents that decide there, all of them this bot's.
            seed: Seed of all draws in this game, in [0, 2**63).
        """


class AskedBot:
    """A user's bot, asked for one action per row, its answers checked.

    Args:
        bot: Object of the user's class.
        name: Name in error texts.
        mask_place: Place of the environment's action mask.
        actions: Layout of the actions, which brings its answers into rows.

    Raises:
        ConfigError: If the object has no ``act``, or its methods take other arguments.
    """

    def __init__(
        self, bot: Bot, *, name: str, mask_place: MaskPlace | None, actions: ActionLayout
    ) -> None:
        self._bot = bot
        self._name = name
        self._mask_place = mask_place
        self._actions = actions
        act = getattr(bot, "act", None)
        self._is_told_games = _takes(act, "games")
        if not _fits(act, None, None, agent="", rng=None, **self._games(None)):
            raise ConfigError(
                f"{name} has no method act(observation, action_mask, *, agent, rng), or one that "
                "takes other arguments"
            )
        reset = getattr(bot, "reset", None)
        if reset is not None and not _fits(reset, 0, seat="", agents=(), seed=0):
            raise ConfigError(f"{name}: its method must be reset(game, *, seat, agents, seed)")
        self._reset = cast("Callable[..., object] | None", reset)

    @property
    def has_reset(self) -> bool:
        """Return whether the bot has a method ``reset``."""
        return self._reset is not None

    @property
    def keeps_games(self) -> bool:
        """Return whether the bot keeps state per game."""
        return self.has_reset or self._is_told_games

    def _games(self, games: object) -> dict[str, object]:
        return {"games": games} if self._is_told_games else {}

    def reset(self, game: int, *, seat: str, agents: tuple[str, ...], seed: int) -> None:
        """Let it begin a game, if it has a method for that.

        Args:
            game: Index of the environment in the batch.
            seat: Name of the seat.
            agents: Agents that decide there.
            seed: Seed of the call, which the game's own is derived from.
        """
        if self._reset is None:
            return
        # The call's seed differs by seat and episode; the index adds the game within the batch.
        words = np.random.SeedSequence((seed, game)).generate_state(1, np.uint64)
        with users_code(f"{self._name} in reset"):
            SETTINGS.run(self._reset, game, seat=seat, agents=agents, seed=int(words[0] >> 1))

    def ask(
        self,
        observation: object,
        action_mask: npt.NDArray[np.bool_] | None,
        *,
        agent: str,
        num_rows: int,
        games: npt.NDArray[np.int64],
        seed: int,
    ) -> npt.NDArray[Any]:
        """Ask for one action per row.

        Args:
            observation: As the environment gives it, without its mask, each array with a leading
                axis of N.
            action_mask: True for legal choices. bool [N, n], or None.
            agent: Deciding agent.
            num_rows: N.
            games: Game of each row. int64 [N].
            seed: Seed of its draws.

        Returns:
            Rows of ``actions``, int64 [N] or float32 [N, K].

        Raises:
            ConfigError: If it raises, or answers with anything but one legal action per row.
        """
        with users_code(f"{self._name} in act"):
            answer = SETTINGS.run(
                self._bot.act,
                self._given(observation, action_mask),
                action_mask,
                agent=agent,
                # The generator is numpy's, because bots need no torch; its seed is from the
                # assignment's.
                rng=np.random.default_rng(seed),
                **self._games(games),
            )
        # The actions are checked before the step, where an illegal one would look like a fault of
        # the environment.
        return self._checked(answer, num_rows=num_rows, mask=action_mask)

    def _given(self, observation: object, mask: npt.NDArray[np.bool_] | None) -> object:
        """Return observations as the environment gives them."""
        if mask is None or self._mask_place not in ("observation", "beside"):
            return observation
        # PettingZoo's masks are int8, as gymnasium's spaces require.
        beside = observation if self._mask_place == "beside" else {"observation": observation}
        return {**cast("Mapping[str, object]", beside), "action_mask": mask.astype(np.int8)}

    def _checked(
        self, answer: object, *, num_rows: int, mask: npt.NDArray[np.bool_] | None
    ) -> npt.NDArray[Any]:
        try:
            # Users' actions may have any type and shape.
            rows = self._actions.from_environment(answer)
        except ValueError as error:
            raise ConfigError(
                f"{self._name} must answer as the environment acts: {error}"
            ) from None
        if len(rows) != num_rows:
            raise ConfigError(
                f"{self._name} must answer with one action for each of {num_rows} rows, "
                f"got {len(rows)}"
            )
        illegal = ~self._actions.are_legal(rows, mask)
        if illegal.any():
            row = int(illegal.argmax())
            chosen = self._actions.actions(rows[row : row + 1])[0]
            legal = "" if mask is None else f": its action mask allows {_allowed(mask[row])}"
            raise ConfigError(f"{self._name} chose {chosen!r}, which is not legal{legal}")
        return rows


def _allowed(mask: npt.NDArray[np.bool_]) -> list[int]:
    allowed: list[int] = np.flatnonzero(mask).tolist()
    return allowed


def make_object(player: str, *, launch_directory: str) -> Bot | None:
    """Make the object of a bot's class; None for ``bot:random``, which has no class.

    Args:
        player: ``bot:random``, or ``bot:package.module:Class`` with or without arguments.
        launch_directory: First entry of ``sys.path`` while the class is resolved.

    Raises:
        ConfigError: If there is no such bot, or its class cannot be made.
    """
    bot = parse_bot(player)
    if bot is None:
        return None
    bot_class = resolve(bot.reference, launch_directory=launch_directory)
    if not callable(bot_class):
        raise ConfigError(f"{player} must name a class, got {bot_class!r}; a bot is {FORM}")
    signature = _signature(bot_class)
    kinds = {} if signature is None else {p.name: p.kind for p in signature.parameters.values()}
    # A class that takes any keyword, or has no readable signature, reports unknown options itself.
    if signature is not None and inspect.Parameter.VAR_KEYWORD not in kinds.values():
        check_options(f"{BOT_PREFIX}{bot.reference}", bot.arguments, kinds)
    with users_code(f"{player}, when it was made,"):
        made: Bot = SETTINGS.run(bot_class, **bot.arguments)
    return made


def _takes(method: object, name: str) -> bool:
    """Return whether a method has a parameter of this name."""
    signature = _signature(method)
    return signature is not None and name in signature.parameters


def _fits(method: object, *arguments: object, **keywords: object) -> bool:
    """Return whether a method can be called so; one whose signature cannot be read can."""
    # Some callables are not written in Python and have no signature, so only the call can tell.
    signature = _signature(method)
    if signature is None:
        return callable(method)
    try:
        signature.bind(*arguments, **keywords)
    except TypeError:
        return False
    return True


def _signature(method: object) -> inspect.Signature | None:
    """Return a method's signature; None if it is unknown, as for some methods not in Python."""
    if not callable(method):
        return None
    try:
        return inspect.signature(method)
    except ValueError:
        return None
