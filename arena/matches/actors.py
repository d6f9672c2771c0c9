"""Bots: players that are programs, not networks.

Shapes: N rows, F features of a flattened observation, n choices, K numbers of an action.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from arena.core import Actor
from arena.envs.actions import ActionLayout
from arena.envs.random_play import uniform_actions
from arena.envs.spaces import ObservationLayout
from arena.errors import ConfigError
from arena.resolve import resolve
from arena.types import BOT_PREFIX, RANDOM_BOT


class Bot(Protocol):
    """What ``bot:package.module:Class`` names: a class without constructor arguments.

    It sees and answers what the environment gives and takes: arrays with a leading axis of N rows,
    nested in dictionaries and tuples as the spaces are.
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

        Args:
            observation: As the environment gives it, with a leading axis of N rows.
            action_mask: True for legal choices; where there are several categories, their masks
                side by side. [N, n], or None.
            agent: Whose decisions these are.
            rng: The only source of randomness.

        Returns:
            As the environment takes it, with a leading axis of N rows: for Discrete integers [N],
            for MultiDiscrete integers [N, branches], for a Box numbers [N, ...].
        """
        ...


class RandomActor:
    """Uniform over the legal actions: see `uniform_actions`.

    Args:
        actions: Layout of the actions of the agents it plays.
    """

    reads_agent = False

    def __init__(self, actions: ActionLayout) -> None:
        self._actions = actions

    def act(
        self,
        observation: torch.Tensor,
        action_mask: torch.Tensor | None,
        *,
        agent: str,
        generator: torch.Generator,
    ) -> torch.Tensor:
        """Draw one action per row. int64 [N] or float32 [N, K]."""
        return uniform_actions(
            self._actions,
            num_rows=len(observation),
            action_mask=action_mask,
            generator=generator,
        )


class BotActor:
    """A user's bot as an Actor: it sees observations as the environment gives them.

    Args:
        bot: The user's object.
        name: For error texts.
        layout: Undoes the flattening of observations.
        actions: Brings its answers into rows.
    """

    reads_agent = True

    def __init__(
        self, bot: Bot, *, name: str, layout: ObservationLayout, actions: ActionLayout
    ) -> None:
        self._bot = bot
        self._name = name
        self._layout = layout
        self._actions = actions

    def act(
        self,
        observation: torch.Tensor,
        action_mask: torch.Tensor | None,
        *,
        agent: str,
        generator: torch.Generator,
    ) -> torch.Tensor:
        """Ask the bot.

        Raises:
            ConfigError: If it answers with anything but one legal action per row.
        """
        seed = torch.randint(2**63 - 1, (), generator=generator, device=generator.device).item()
        mask = None if action_mask is None else action_mask.cpu().numpy()
        answer = self._bot.act(
            self._layout.to_environment(observation.cpu()),
            mask,
            agent=agent,
            rng=np.random.default_rng(int(seed)),
        )
        action = self._checked(answer, num_rows=len(observation), mask=mask)
        return torch.from_numpy(action).to(observation.device)

    def _checked(
        self, answer: object, *, num_rows: int, mask: npt.NDArray[np.bool_] | None
    ) -> npt.NDArray[Any]:
        try:
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


def make_bot(
    player: str, *, layout: ObservationLayout, actions: ActionLayout, launch_directory: str
) -> Actor:
    """Make the actor that a bot's id names.

    Args:
        player: ``bot:random`` or ``bot:package.module:Class``.
        layout: Of the observations of the agents that it plays.
        actions: Layout of their actions.
        launch_directory: First on ``sys.path`` while the class is resolved.

    Raises:
        ConfigError: If there is no such bot, or its class cannot be made or has no ``act``.
    """
    if player == RANDOM_BOT:
        return RandomActor(actions)
    reference = player.removeprefix(BOT_PREFIX)
    if reference == player or ":" not in reference:
        raise ConfigError(f"a bot is bot:random or bot:package.module:Class, got {player!r}")
    bot_class = resolve(reference, launch_directory=launch_directory)
    if not callable(bot_class):
        raise ConfigError(f"{player} must name a class, got {bot_class!r}")
    bot = bot_class()
    if not callable(getattr(bot, "act", None)):
        raise ConfigError(f"{player} has no method act(observation, action_mask, *, agent, rng)")
    return BotActor(bot, name=player, layout=layout, actions=actions)
