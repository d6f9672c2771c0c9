"""Kuhn poker for two: the twin of OpenSpiel's ``kuhn_poker``.

Three cards, one each; both pay an ante of 1 and may bet 1 more. Source: Kuhn, "A Simplified
Two-Person Poker" (Contributions to the Theory of Games, 1950).

Tests: `tests/arena/envs/batched/test_games.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from arena.envs.batched.cards import Bets, CardGame

PASS, BET = 0, 1
ANTE = 1

PAYOFFS = {
    (BET, PASS): ANTE,
    (PASS, BET, PASS): -ANTE,
}
"""Winnings of agent 0 where an agent folded."""

STAKES = {
    (PASS, PASS): ANTE,
    (BET, BET): ANTE + 1,
    (PASS, BET, BET): ANTE + 1,
}
"""Winnings of the higher card where no agent folded."""


class KuhnRules:
    """`CardRules` of Kuhn poker."""

    num_cards = 3
    num_dealt = 2
    num_actions = 2
    observation_size = 11

    def legal_actions(self, bets: Bets) -> Sequence[int]:
        """Return both actions, until one ends the game."""
        return () if bets in PAYOFFS or bets in STAKES else (PASS, BET)

    def agent_on_turn(self, bets: Bets) -> int:
        """Return the agent on turn: they alternate."""
        return len(bets) % 2

    def payoff(self, bets: Bets, *, cards: Sequence[int]) -> float:
        """Return the stakes; the higher card wins them unless an agent folded."""
        if bets in PAYOFFS:
            return PAYOFFS[bets]
        # Cards are numbered by strength.
        return STAKES[bets] if cards[0] > cards[1] else -STAKES[bets]

    def features(self, bets: Bets, *, cards: Sequence[int]) -> Sequence[int]:
        """Return the features: the agent (2), its card (3), and the bets (3 times 2)."""
        agent = self.agent_on_turn(bets)
        # One-hots lie side by side: agent at 0, card at 2, bets at 5, as in OpenSpiel's
        # information state.
        return [agent, 2 + cards[agent], *(5 + 2 * at + bet for at, bet in enumerate(bets))]


class KuhnPoker(CardGame):
    """Kuhn poker, B games at once."""

    rules = KuhnRules()
