"""Bots as loaded players.

Tests: `tests/tools/api/test_load.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from arena.export.champion import GraphPlayer, continuous_of
from arena.spaces import ActionLayout, nested

if TYPE_CHECKING:
    from arena.bots.asking import AskedBot


class BotPlayer(GraphPlayer):
    """Bot of one population: a player whose graph is that of ``bot:random``.

    Args:
        name: Canonical spelling of the bot.
        facts: As for `arena.export.champion.GraphPlayer`.
        bot: User's bot. None: ``bot:random``.
        seed: Seed of all draws. None: different draws each time.
    """

    def __init__(
        self, name: str, facts: Mapping[str, Any], *, bot: AskedBot | None, seed: int | None
    ) -> None:
        self._name = name
        self._bot = bot
        # Games that the bot has begun, as (row of the batch, agent).
        self._begun: set[tuple[int, str]] = set()
        space = facts["action"]["space"]
        number = ActionLayout.from_json(space, continuous=continuous_of(facts)).num_logits
        super().__init__(facts, [_EqualLogits(number)], seed=seed)

    def probabilities(
        self, observation: object, action_mask: object = None, *, agent: str | None = None
    ) -> npt.NDArray[np.float64]:
        """Return those of ``bot:random``: each legal choice is equally likely.

        Raises:
            ValueError: If it is a user's bot, or an argument does not fit.
        """
        if self._bot is not None:
            raise ValueError(f"{self._name} must be a policy or bot:random: bots tell no chances")
        return super().probabilities(observation, action_mask, agent=agent)

    def clear(self) -> None:
        """Begin new games."""
        super().clear()
        self._begun.clear()

    def _decide(
        self,
        inputs: dict[str, npt.NDArray[Any]],
        *,
        agent: str | None,
        sample: bool,
        is_one: bool,
    ) -> Any:  # noqa: ANN401  (whatever the environment takes)
        """Let the bot choose; ``sample`` is not for bots.

        Raises:
            ConfigError: If the bot raises, or answers with an illegal action.
        """
        num_rows = len(next(iter(inputs.values())))
        if self._bot is None:
            everything = np.tile(self._actions.everything, (num_rows, 1))
            masks = inputs.get("action_mask", everything)
            return self._actions.uniform(masks, rng=self._rng, is_one=is_one)
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
        layout = self._actions.layout
        return layout.actions(rows)[0] if is_one else layout.to_environment(rows)

    def _begin(self, bot: AskedBot, agent: str, *, num_rows: int) -> None:
        """Let the bot begin the games of rows in which this agent has not decided since reset."""
        for game in range(num_rows):
            if (game, agent) not in self._begun:
                self._begun.add((game, agent))
                seed = int(self._rng.integers(2**63 - 1))
                bot.reset(game, seat=agent, agents=(agent,), seed=seed)

    def _in_units(self, inputs: Mapping[str, npt.NDArray[Any]]) -> Any:  # noqa: ANN401
        """Return the environment's own form of observations, with a leading axis."""
        layout = self._inputs.layout
        parts = [inputs[leaf.name_in("observation")].astype(leaf.dtype) for leaf in layout.leaves]
        return nested(layout.nest, parts)


class _EqualLogits:
    """Graph of uniform play over choices, with the methods of an onnxruntime session.

    Args:
        number: Number of choices of all categories.
    """

    def __init__(self, number: int) -> None:
        self._number = number

    def get_inputs(self) -> list[SimpleNamespace]:
        """Return no input of which anything depends."""
        return []

    def get_outputs(self) -> list[SimpleNamespace]:
        """Return the logits, if there are choices."""
        return [SimpleNamespace(name="logits")] if self._number else []

    def run(
        self, names: Sequence[str], feeds: Mapping[str, npt.NDArray[Any]]
    ) -> list[npt.NDArray[np.float32]]:
        """Return equal logits of legal choices for each name."""
        num_rows = len(next(iter(feeds.values())))
        legal = feeds.get("action_mask", np.ones((num_rows, self._number), dtype=np.bool_))
        logits = np.where(legal, 0.0, np.finfo(np.float32).min).astype(np.float32)
        return [logits for _ in names]
