"""Leduc poker for two: the twin of OpenSpiel's ``leduc_poker``.

Six cards, two each of three ranks (card // 2); both pay an ante of 1 and get a card; after a round
of betting a public card appears, and a second round follows. Source: Southey et al., "Bayes' Bluff:
Opponent Modelling in Poker" (UAI 2005).

Tests: `tests/arena/envs/batched/test_games.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from arena.envs.batched.cards import Bets, CardGame
from arena.envs.batched.leduc_betting import CALL, FOLD, RAISE, betting_of

MAX_RAISES = 2
"""Most raises in a round."""

MAX_BETS = 4
"""Most bets in a round: call, raise, raise, call."""

NUM_RANKS = 3
PUBLIC = 2
"""Position of the public card in a deal."""


class LeducRules:
    """`CardRules` of Leduc poker."""

    num_cards = 2 * NUM_RANKS
    num_dealt = 3
    num_actions = 3
    observation_size = 30

    def legal_actions(self, bets: Bets) -> Sequence[int]:
        """Return the legal actions: fold under pressure, call always, raise twice in a round."""
        betting = betting_of(bets)
        if betting.over:
            return ()
        pressed = betting.paid[betting.agent] < max(betting.paid)
        may_raise = betting.rounds[-1].count(RAISE) < MAX_RAISES
        return [*([FOLD] * pressed), CALL, *([RAISE] * may_raise)]

    def agent_on_turn(self, bets: Bets) -> int:
        """Return the agent on turn: they alternate, and agent 0 begins each round."""
        return betting_of(bets).agent

    def payoff(self, bets: Bets, *, cards: Sequence[int]) -> float:
        """Return the winnings: the winner gets the loser's payments; equal hands get nothing."""
        betting = betting_of(bets)
        if betting.folded is not None:
            # The winner gains the loser's payments.
            return betting.paid[1] if betting.folded == 1 else -betting.paid[0]
        mine, theirs = (_hand(cards[agent], public=cards[PUBLIC]) for agent in range(2))
        # At a showdown both have paid the same.
        return betting.paid[0] * ((mine > theirs) - (mine < theirs))

    def features(self, bets: Bets, *, cards: Sequence[int]) -> Sequence[int]:
        """Return the features: the agent (2), its card (6), the public one (6), the bets (2 by 4 by
        2).
        """
        betting = betting_of(bets)
        seen = [betting.agent, 2 + cards[betting.agent]]
        if len(betting.rounds) > 1:
            seen.append(2 + self.num_cards + cards[PUBLIC])
        first = 2 + 2 * self.num_cards
        # A bet has two bits: call or raise.
        return seen + [
            first + 2 * (MAX_BETS * number + at) + (action == RAISE)
            for number, actions in enumerate(betting.rounds)
            for at, action in enumerate(actions)
        ]


def _hand(card: int, *, public: int) -> int:
    """Return a hand's strength: a pair beats everything, then the higher rank; the public card is
    shared.
    """
    rank = card // 2
    # A pair beats every single card.
    return rank + NUM_RANKS * (rank == public // 2)


class LeducPoker(CardGame):
    """Leduc poker, B games at once."""

    rules = LeducRules()
