"""Betting of Leduc poker in plain Python, for the rules and for drawings. Torch-free.

Tests: `tests/arena/envs/batched/test_games.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

FOLD, CALL, RAISE = 0, 1, 2
ANTE = 1
RAISE_BY = (2, 4)
"""Size of a raise by round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Betting:
    """State of the betting.

    Attributes:
        rounds: Actions of each round so far.
        paid: Amount paid by each agent.
        agent: Agent on turn; at the end, the agent that would be.
        folded: Agent that folded.
    """

    rounds: tuple[tuple[int, ...], ...]
    paid: tuple[int, int]
    agent: int
    folded: int | None

    @property
    def over(self) -> bool:
        """Return whether an agent folded, or both rounds have ended."""
        return self.folded is not None or len(self.rounds) > len(RAISE_BY)


@cache
def betting_of(bets: tuple[int, ...]) -> Betting:
    """Follow a line of betting: all actions so far, of both agents."""
    rounds: list[tuple[int, ...]] = [()]
    paid = [ANTE, ANTE]
    agent = 0
    for action in bets:
        if action == FOLD:
            return Betting(rounds=tuple(rounds), paid=(paid[0], paid[1]), agent=agent, folded=agent)
        number = len(rounds) - 1
        # A call matches the larger payment, a raise adds to it.
        paid[agent] = max(paid) + (RAISE_BY[number] if action == RAISE else 0)
        rounds[-1] = (*rounds[-1], action)
        agent = 1 - agent
        # A call ends a round unless it is the round's first action.
        if action == CALL and len(rounds[-1]) > 1:
            rounds.append(())
            agent = 0
    return Betting(rounds=tuple(rounds), paid=(paid[0], paid[1]), agent=agent, folded=None)
