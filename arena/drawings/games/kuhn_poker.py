"""Kuhn poker: the cards, and what each player has paid."""

from __future__ import annotations

from arena.drawings.cards import Card, dealt, draw_hands
from arena.drawings.picture import Moment, Picture

WORDS = ("pass", "bet")


def draw(moment: Moment) -> Picture:
    """Draw the hands of all players; a bet adds 1 to the ante of 1."""
    # With more players there are more cards than names.
    faces = "JQK" if len(moment.agents) == 2 else "123456789"
    bets = [WORDS[action] for _, action in moment.moves]
    hands = [
        (
            f"{agent}: paid {1 + moment.moves.count((at, 1))}",
            [Card(faces[card] if moment.shows(agent) else "")],
        )
        for at, (agent, card) in enumerate(zip(moment.agents, dealt(moment), strict=True))
    ]
    return draw_hands(moment.caption("".join(bets[-1:])), hands, facts=[f"bets: {', '.join(bets)}"])
