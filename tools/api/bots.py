"""Bots as loaded players.

Tests: `tests/tools/api/test_load.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from arena.errors import NoValue
from arena.export.champion import Actions, Inputs, continuous_of
from arena.spaces import ObservationLayout, nested

if TYPE_CHECKING:
    from arena.bots.asking import AskedBot
    from arena.spaces import ActionLayout


class BotPlayer:
    """Bot of one population.

    Args:
        name: Canonical spelling of the bot.
        facts: As for `arena.export.champion.GraphPlayer`.
        bot: User's bot. None: ``bot:random``.
        actions: Layout of the actions.
        seed: Seed of all draws. None: different draws each time.
    """

    def __init__(
        self,
        name: str,
        facts: Mapping[str, Any],
        *,
        bot: AskedBot | None,
        actions: ActionLayout,
        seed: int | None,
    ) -> None:
        self._name = name
        self._bot = bot
        self._inputs = Inputs(facts)
        self._observation = ObservationLayout.from_json(facts["observation"]["space"])
        self._actions = Actions(facts["action"]["space"], continuous=continuous_of(facts))
        self._layout = actions
        self._rng = np.random.default_rng()
        # Games (row of a batch, agent) that the bot has begun.
        self._begun: set[tuple[int, str]] = set()
        self.reset(seed=seed)

    @property
    def agents(self) -> list[str]:
        """Agents that it can play."""
        return self._inputs.agents

    def act(
        self,
        observation: object,
        action_mask: object,
        *,
        agent: str | None,
        sample: bool,
        seed: int | None,
    ) -> Any:  # noqa: ANN401  (whatever the environment takes)
        """Let the bot choose; ``sample`` is not for bots.

        Raises:
            ValueError: If an argument does not fit.
            ConfigError: If the bot raises, or answers with an illegal action.
        """
        inputs, is_one = self._inputs.checked(observation, action_mask, agent=agent)
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        if self._bot is None:
            return self._actions.uniform(self._masks(inputs), rng=self._rng, is_one=is_one)
        num_rows = len(next(iter(inputs.values())))
        agent = self.agents[0] if agent is None else agent
        self._begin(self._bot, agent, num_rows=num_rows)
        rows = self._bot.ask(
            self._in_units(inputs),
            inputs.get("action_mask"),
            agent=agent,
            num_rows=num_rows,
            games=np.arange(num_rows),
            seed=int(self._rng.integers(2**63 - 1)),
        )
        return self._layout.actions(rows)[0] if is_one else self._layout.to_environment(rows)

    def _begin(self, bot: AskedBot, agent: str, *, num_rows: int) -> None:
        """Let the bot begin the games of rows in which this agent has not decided since reset."""
        for game in range(num_rows):
            if (game, agent) not in self._begun:
                self._begun.add((game, agent))
                seed = int(self._rng.integers(2**63 - 1))
                bot.reset(game, seat=agent, agents=(agent,), seed=seed)

    def _in_units(self, inputs: Mapping[str, npt.NDArray[Any]]) -> Any:  # noqa: ANN401
        """Return the environment's own form of observations, with a leading axis."""
        layout = self._observation
        parts = [inputs[leaf.name_in("observation")].astype(leaf.dtype) for leaf in layout.leaves]
        return nested(layout.nest, parts)

    def _masks(self, inputs: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.bool_]:
        num_rows = len(next(iter(inputs.values())))
        everything = np.tile(self._actions.everything, (num_rows, 1))
        return inputs.get("action_mask", everything)

    def probabilities(
        self, observation: object, action_mask: object, *, agent: str | None
    ) -> npt.NDArray[np.float64]:
        """Return those of ``bot:random``: each legal choice is equally likely.

        Raises:
            ValueError: If it is a user's bot, or an argument does not fit.
        """
        if self._bot is not None:
            raise ValueError(f"{self._name} must be a policy or bot:random: bots tell no chances")
        inputs, is_one = self._inputs.checked(observation, action_mask, agent=agent)
        # Equal logits of legal choices.
        lowest = np.finfo(np.float32).min
        logits = np.where(self._masks(inputs), 0.0, lowest).astype(np.float32)
        given = {"logits": logits} if logits.size else {}
        rows = self._actions.probabilities(given)
        return rows[0] if is_one else rows

    def value(self, observation: object, *, agent: str | None) -> float:
        """Raise NoValue: bots have none."""
        raise NoValue(f"{self._name} has no value function: it is a bot")

    def reset(self, *, seed: int | None) -> None:
        """Begin a new episode."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self._begun.clear()
