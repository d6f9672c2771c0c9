"""Leduc poker for two: the cards, the public one once it is dealt."""

from __future__ import annotations

from arena.drawings.cards import Card, dealt, draw_hands
from arena.drawings.colours import INK, RED
from arena.drawings.openspiel import draw_text
from arena.drawings.picture import Moment, Picture
from arena.envs.batched.leduc_betting import betting_of

WORDS = ("fold", "call", "raise")


def draw(moment: Moment) -> Picture:
    """Draw the hands and the public card."""
    # The betting of more players goes another way.
    if len(moment.agents) != 2:
        return draw_text(moment)
    betting = betting_of(tuple(action for _, action in moment.moves))
    # Two suits, which win nothing.
    cards = [Card("JQK"[card // 2], (INK, RED)[card % 2]) for card in dealt(moment)]
    hands = [
        (f"{agent}: paid {betting.paid[at]}", [cards[at] if moment.shows(agent) else Card("")])
        for at, agent in enumerate(moment.agents)
    ]
    hands.append(("public card", [cards[2] if len(betting.rounds) > 1 else Card("")]))
    facts = [
        f"round {number}: {', '.join(WORDS[action] for action in actions)}"
        for number, actions in enumerate(betting.rounds[:2], start=1)
        if actions
    ]
    last = "".join(WORDS[action] for _, action in moment.moves[-1:])
    return draw_hands(moment.caption(last), hands, facts=facts)
