"""Leduc poker for two: the cards, the public one once it is dealt."""

from __future__ import annotations

from arena.drawings.boards import INK, RED, card, draw_board
from arena.drawings.openspiel import dealt, draw_text
from arena.drawings.picture import Moment, Picture
from arena.envs.batched.leduc_betting import betting_of

WORDS = ("fold", "call", "raise")
# Two suits, which win nothing.
SUITS = {"": INK, " red": RED}
CARDS = {f"{face}{suit}": card(face, fill=SUITS[suit]) for face in "JQK" for suit in SUITS}


def draw(moment: Moment) -> Picture:
    """Draw the hands and the public card."""
    # The betting of more players goes another way.
    if len(moment.agents) != 2:
        return draw_text(moment)
    betting = betting_of(tuple(action for _, action in moment.moves))
    cards = [[*CARDS][one] for one in dealt(moment)]
    public = cards[2] if len(betting.rounds) > 1 else "?"
    paid = zip(moment.agents, betting.paid, strict=True)
    return draw_board(
        moment,
        [*moment.hidden([[one] for one in cards[:2]]), [public]],
        {**CARDS, "?": card("")},
        move="".join(WORDS[action] for _, action in moment.moves[-1:]),
        facts=[
            f"round {number}: {', '.join(WORDS[action] for action in actions)}"
            for number, actions in enumerate(betting.rounds[:2], start=1)
            if actions
        ],
        ground="table",
        rows=[*(f"{agent}: paid {number}" for agent, number in paid), "public card"],
    )
