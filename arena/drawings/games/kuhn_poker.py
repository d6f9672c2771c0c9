"""Kuhn poker: the cards, and what each player has paid."""

from __future__ import annotations

from arena.drawings.boards import card, draw_board
from arena.drawings.openspiel import dealt
from arena.drawings.picture import Moment, Picture

WORDS = ("pass", "bet")


def draw(moment: Moment) -> Picture:
    """Draw the hands of all players; a bet adds 1 to the ante of 1."""
    # With more players there are more cards than names.
    faces = "JQK" if len(moment.agents) == 2 else "123456789"
    bets = [WORDS[action] for _, action in moment.moves]
    paid = [1 + moment.moves.count((at, 1)) for at in range(len(moment.agents))]
    return draw_board(
        moment,
        moment.hidden([[faces[one]] for one in dealt(moment)]),
        {"?": card(""), **{face: card(face) for face in faces}},
        move="".join(bets[-1:]),
        facts=[f"bets: {', '.join(bets)}"],
        ground="table",
        rows=[f"{agent}: paid {number}" for agent, number in zip(moment.agents, paid, strict=True)],
    )
