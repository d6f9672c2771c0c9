"""Stepper of one game of OpenSpiel with turns or simultaneous decisions. Torch-free.

Tests: `tests/arena/envs/openspiel/test_game.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from arena.envs import chance
from arena.envs.openspiel.game import OpenSpielGame
from arena.errors import EnvironmentFault

if TYPE_CHECKING:
    import numpy.typing as npt

    from arena.envs.pettingzoo.episode import EpisodeRow

UNIFORM_TOLERANCE = 1e-12
"""Tolerance of equal probabilities: they are quotients, and rounding must not change the dealt
card.
"""


class OpenSpielStepper:
    """Stepper of one game that fills its row of the batch; an
    `arena.envs.pettingzoo.episode.Stepper`.

    Chance is a function of the episode's seed: its n-th event takes the n-th number of
    `arena.envs.chance.uniform`. A game that outlasts its declared length is truncated.

    Args:
        game: Game from `arena.envs.openspiel.game.load_game`.
        row: Row of the batch.

    Attributes:
        state: A ``pyspiel.State``; None before the first episode.
    """

    def __init__(self, game: OpenSpielGame, *, row: EpisodeRow) -> None:
        self._game = game
        self._row = row
        self._agents = game.agents
        self._max_length: int = game.game.max_game_length()
        self.state: Any = None
        self._deciding: list[int] = []
        self._seed = 0
        self._num_draws = 0
        self._length = 0
        self._returns = [0.0] * len(self._agents)

    @property
    def on_turn(self) -> str:
        """Player whose action is carried out, for messages."""
        if len(self._deciding) == 1:
            return f"agent {self._agents[self._deciding[0]]!r} on turn"
        return f"agents {[self._agents[player] for player in self._deciding]} on turn"

    def start(self, seed: int) -> None:
        """Deal, and set the first pending decisions.

        Args:
            seed: Seed of the episode.

        Raises:
            EnvironmentFault: If chance alone ends the game.
        """
        self._seed, self._num_draws, self._length = seed, 0, 0
        # Rewards of chance are credited with the first decision, because this call's rewards may
        # still be those of the last episode.
        self._returns = [0.0] * len(self._agents)
        self.state = self._game.game.new_initial_state()
        self._row.begin()
        self._go_on()
        if self.state.is_terminal():
            raise EnvironmentFault("after reset a player must be on turn, the game is over")
        self._ask()

    def step(self, actions: Mapping[str, list[int]]) -> bool:
        """Carry out the decisions and the chance after them, then set the next pending decisions.

        Args:
            actions: Actions of the whole batch by population, [B * S].

        Returns:
            Whether the episode is over; then there are no pending decisions.
        """
        chosen: dict[int, int] = {
            player: self._row.action(self._agents[player], actions) for player in self._deciding
        }
        self._game.apply(self.state, chosen)
        # Only decisions are counted: with chance, a card game would be truncated.
        self._length += 1
        self._go_on()
        # Rewards are credited after chance, which may change the returns as well.
        self._credit()
        is_over = self.state.is_terminal()
        # Some games (backgammon) may outlast their declared length, so they are truncated.
        if not is_over and self._length < self._max_length:
            self._ask()
            return False
        for player, agent in enumerate(self._agents):
            if is_over:
                self._row.terminate(agent, None)
            else:
                self._row.truncate(agent, self._observation(player), None)
        self._row.finish({})
        return True

    def close(self) -> None:
        """Drop the game's state."""
        self.state = None

    def _credit(self) -> None:
        """Credit the increase of the returns."""
        # r = G_after - G_before. OpenSpiel's own rewards are undefined at chance nodes: 2048
        # repeats a reward there.
        before, self._returns = self._returns, self.state.returns()
        received = (after - first for first, after in zip(before, self._returns, strict=True))
        self._row.credit(dict(zip(self._agents, received, strict=True)))

    def _go_on(self) -> None:
        """Let chance act until a decision is pending or the game is over."""
        while not self.state.is_terminal():
            if self.state.is_chance_node():
                uniform = chance.uniform(self._seed, draw=self._num_draws)
                self._num_draws += 1
                outcomes = self.state.chance_outcomes()
                self.state.apply_action(chance_outcome(outcomes, uniform=uniform))
                continue
            self._deciding = self._game.deciding(self.state)
            if self._deciding:
                return
            # At this simultaneous node no player has a choice.
            self._game.apply(self.state, {})

    def _ask(self) -> None:
        for player in self._deciding:
            self._row.ask(self._agents[player], self._observation(player), None)

    def _observation(self, player: int) -> dict[str, npt.NDArray[Any]]:
        legal = self.state.legal_actions_mask(player)
        return {
            "observation": self._game.see(self.state, player),
            "action_mask": np.array(legal, dtype=np.int8),
        }


def chance_outcome(outcomes: Sequence[tuple[int, float]], *, uniform: float) -> int:
    """Return the outcome that a random number selects.

    Args:
        outcomes: Outcomes with probabilities, which sum to one, in the game's order.
        uniform: Number in [0, 1). Equally likely outcomes are selected by its position alone, so
            that a game in whole tensors can do the same without probabilities; others by their
            cumulative sum.
    """
    first = outcomes[0][1]
    if all(abs(probability - first) < UNIFORM_TOLERANCE for _, probability in outcomes):
        # The index is floor(u m), as in `CardGame.reset`.
        return outcomes[int(uniform * len(outcomes))][0]
    cumulative = 0.0
    for outcome, probability in outcomes:
        cumulative += probability
        if uniform < cumulative:
            return outcome
    # The sum of the probabilities may round to less than one, so the last possible outcome is
    # taken.
    return next(outcome for outcome, probability in reversed(outcomes) if probability > 0.0)
