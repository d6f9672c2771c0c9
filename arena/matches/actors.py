"""Bots: players that are programs, not networks.

Shapes: N rows, F features of a flattened observation, n actions.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from arena.core import Actor
from arena.envs.spaces import ObservationLayout
from arena.errors import ConfigError
from arena.resolve import resolve
from arena.types import BOT_PREFIX, RANDOM_BOT


class Bot(Protocol):
    """What ``bot:package.module:Class`` names: a class without constructor arguments."""

    def act(
        self,
        observation: npt.NDArray[Any],
        action_mask: npt.NDArray[np.bool_] | None,
        *,
        agent: str,
        rng: np.random.Generator,
    ) -> npt.NDArray[np.int64]:
        """Choose one action per row.

        Args:
            observation: As the environment gives it, with a leading axis of N rows.
            action_mask: True for legal actions. [N, n], or None.
            agent: Whose decisions these are.
            rng: The only source of randomness.

        Returns:
            Integers [N].
        """
        ...


class RandomActor:
    """Uniform over the legal actions.

    Args:
        num_actions: Of the agents it plays; what it draws from where there is no mask.
    """

    reads_agent = False

    def __init__(self, num_actions: int) -> None:
        self._num_actions = num_actions

    def act(
        self,
        observation: torch.Tensor,
        action_mask: torch.Tensor | None,
        *,
        agent: str,
        generator: torch.Generator,
    ) -> torch.Tensor:
        """Draw one action per row. int64 [N]."""
        num_rows, device = len(observation), observation.device
        if action_mask is None:
            return torch.randint(self._num_actions, (num_rows,), generator=generator, device=device)
        draws = torch.rand(action_mask.shape, generator=generator, device=device)
        # Independent uniform draws: each legal action is the largest equally often.
        return draws.masked_fill_(~action_mask, -1.0).argmax(dim=1)


class BotActor:
    """A user's bot as an Actor: it sees observations as the environment gives them.

    Args:
        bot: The user's object.
        name: For error texts.
        layout: Undoes the flattening of observations.
        num_actions: Answers are in [0, num_actions).
    """

    reads_agent = True

    def __init__(self, bot: Bot, *, name: str, layout: ObservationLayout, num_actions: int) -> None:
        self._bot = bot
        self._name = name
        self._layout = layout
        self._num_actions = num_actions

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
    ) -> npt.NDArray[np.int64]:
        action = np.asarray(answer)
        if action.shape != (num_rows,) or not np.issubdtype(action.dtype, np.integer):
            raise ConfigError(
                f"{self._name} must answer with integers of shape ({num_rows},), "
                f"got {action.dtype} of shape {action.shape}"
            )
        outside = (action < 0) | (action >= self._num_actions)
        if outside.any():
            raise ConfigError(
                f"{self._name} must answer with actions in [0, {self._num_actions}), "
                f"got {action[outside][0]}"
            )
        if mask is not None:
            illegal = ~mask[np.arange(num_rows), action]
            if illegal.any():
                row = int(illegal.argmax())
                raise ConfigError(
                    f"{self._name} chose action {action[row]}, legal are "
                    f"{mask[row].nonzero()[0].tolist()}"
                )
        return action.astype(np.int64)


def make_bot(
    player: str, *, layout: ObservationLayout, num_actions: int, launch_directory: str
) -> Actor:
    """Make the actor that a bot's id names.

    Args:
        player: ``bot:random`` or ``bot:package.module:Class``.
        layout: Of the observations of the agents that it plays.
        num_actions: Of these agents.
        launch_directory: First on ``sys.path`` while the class is resolved.

    Raises:
        ConfigError: If there is no such bot, or its class cannot be made or has no ``act``.
    """
    if player == RANDOM_BOT:
        return RandomActor(num_actions)
    reference = player.removeprefix(BOT_PREFIX)
    if reference == player or ":" not in reference:
        raise ConfigError(f"a bot is bot:random or bot:package.module:Class, got {player!r}")
    bot_class = resolve(reference, launch_directory=launch_directory)
    if not callable(bot_class):
        raise ConfigError(f"{player} must name a class, got {bot_class!r}")
    bot = bot_class()
    if not callable(getattr(bot, "act", None)):
        raise ConfigError(f"{player} has no method act(observation, action_mask, *, agent, rng)")
    return BotActor(bot, name=player, layout=layout, num_actions=num_actions)
