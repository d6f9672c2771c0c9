"""Leduc poker for two: the twin of OpenSpiel's ``leduc_poker``.

Six cards, two each of three ranks (card // 2); both pay an ante of 1 and get a card; after a round
of betting a public card appears, and a second round follows. Source: Southey et al., "Bayes' Bluff:
Opponent Modelling in Poker" (UAI 2005).

Tests: `tests/arena/envs/batched/test_card_games.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch

from arena.envs.batched.cards import Bets, CardGame, CardTables, unroll
from arena.envs.batched.game import refuse_kwargs

FOLD, CALL, RAISE = 0, 1, 2
ANTE = 1
RAISE_BY = (2, 4)
"""Size of a raise by round."""

MAX_RAISES = 2
"""Most raises in a round."""

MAX_BETS = 4
"""Most bets in a round: call, raise, raise, call."""

NUM_RANKS = 3
PUBLIC = 2
"""Position of the public card in a deal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Betting:
    """State of the betting.

    Attributes:
        rounds: Actions of each round so far.
        paid: Amount paid by each agent.
        agent: Agent on turn; at the end, the agent that would be.
        folded: Agent that gave up.
    """

    rounds: tuple[Bets, ...]
    paid: tuple[int, int]
    agent: int
    folded: int | None

    @property
    def over(self) -> bool:
        return self.folded is not None or len(self.rounds) > len(RAISE_BY)


@cache
def _read(bets: Bets) -> _Betting:
    """Follow a line of betting."""
    rounds: list[Bets] = [()]
    paid = [ANTE, ANTE]
    agent = 0
    for action in bets:
        if action == FOLD:
            return _Betting(
                rounds=tuple(rounds), paid=(paid[0], paid[1]), agent=agent, folded=agent
            )
        number = len(rounds) - 1
        # A call matches the larger payment, a raise adds to it.
        paid[agent] = max(paid) + (RAISE_BY[number] if action == RAISE else 0)
        rounds[-1] = (*rounds[-1], action)
        agent = 1 - agent
        # A call ends a round unless it opens it.
        if action == CALL and len(rounds[-1]) > 1:
            rounds.append(())
            agent = 0
    return _Betting(rounds=tuple(rounds), paid=(paid[0], paid[1]), agent=agent, folded=None)


class LeducRules:
    """`CardRules` of Leduc poker."""

    num_cards = 2 * NUM_RANKS
    num_dealt = 3
    num_actions = 3
    observation_size = 30

    def legal_actions(self, bets: Bets) -> Sequence[int]:
        """Return the legal actions: fold under pressure, call always, raise twice in a round."""
        betting = _read(bets)
        if betting.over:
            return ()
        pressed = betting.paid[betting.agent] < max(betting.paid)
        may_raise = betting.rounds[-1].count(RAISE) < MAX_RAISES
        return [*([FOLD] * pressed), CALL, *([RAISE] * may_raise)]

    def agent_on_turn(self, bets: Bets) -> int:
        """Return the agent on turn: they alternate, and agent 0 begins each round."""
        return _read(bets).agent

    def payoff(self, bets: Bets, *, cards: Sequence[int]) -> float:
        """Return the winnings: the winner gets the loser's payments; equal hands get nothing."""
        betting = _read(bets)
        if betting.folded is not None:
            # The pot beyond the winner's own payments is the loser's.
            return betting.paid[1] if betting.folded == 1 else -betting.paid[0]
        mine, theirs = (_hand(cards[agent], public=cards[PUBLIC]) for agent in range(2))
        # At a showdown both have paid the same.
        return betting.paid[0] * ((mine > theirs) - (mine < theirs))

    def features(self, bets: Bets, *, cards: Sequence[int]) -> Sequence[int]:
        """Return the features: the agent (2), its card (6), the public one (6), the bets (2 by 4 by
        2).
        """
        betting = _read(bets)
        seen = [betting.agent, 2 + cards[betting.agent]]
        if len(betting.rounds) > 1:
            seen.append(2 + self.num_cards + cards[PUBLIC])
        first = 2 + 2 * self.num_cards
        # Two bits per bet: call or raise.
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
    """Leduc poker, B games at once.

    Args:
        num_games: B.
        device: Device of all tensors.
        kwargs: None.

    Raises:
        ConfigError: If there are any.
    """

    def __init__(self, num_games: int, *, device: torch.device, **kwargs: object) -> None:
        refuse_kwargs(type(self).__name__, kwargs)
        super().__init__(_tables(), num_games=num_games, device=device)


@cache
def _tables() -> CardTables:
    return unroll(LeducRules())
