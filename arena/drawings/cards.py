"""Hands of cards, face up: one function draws them all.

Tests: `tests/arena/drawings/test_games.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from arena.drawings import colours
from arena.drawings.openspiel import CHANCE
from arena.drawings.picture import WIDTH, Moment, Picture, line, sheet, write
from arena.drawings.svg import tag

TALL, HAND = 56, 88
"""Pixels of a card, and of a hand with its name."""


class Card(NamedTuple):
    """Card of a hand.

    Attributes:
        face: One or two characters; empty: it lies face down.
        colour: Colour of its face.
        marked: Whether it stands out.
    """

    face: str
    colour: str = colours.INK
    marked: bool = False


def draw_hands(
    caption: str, hands: Sequence[tuple[str, Sequence[Card]]], *, facts: Sequence[str] = ()
) -> Picture:
    """Draw hands below each other.

    Args:
        caption: Line above them.
        hands: Names and cards.
        facts: Lines below: the bets, what cards mean.
    """
    parts, lines = [], []
    for y, (name, cards) in zip(range(0, HAND * len(hands), HAND), hands, strict=True):
        parts.append(write(name, x=14, y=y + 16))
        step = min(46.0, (WIDTH - 28) / max(len(cards), 1))
        for at, card in enumerate(cards):
            parts.append(_card(card, x=14 + step * at, y=y + 24, width=step - 4))
        shown = (f"[{card.face or '?'}]{'*' if card.marked else ''}" for card in cards)
        lines.append(f"{name}: {' '.join(shown)}")
    height, legend = HAND * len(hands), [(None, fact) for fact in facts]
    return sheet(caption, parts=parts, height=height, lines=lines, legend=legend)


def dealt(moment: Moment) -> list[int]:
    """Return the cards that were dealt: by a batched game, or by chance in a state of OpenSpiel."""
    if hasattr(moment.env, "full_history"):
        return [one.action for one in moment.env.full_history() if one.player == CHANCE]
    cards: list[int] = moment.env.dealt()[0].tolist()
    return cards


def _card(card: Card, *, x: float, y: float, width: float) -> str:
    edge = line(colours.MARK, 3) if card.marked else line(colours.INK, 1)
    edge["fill"] = colours.WHITE if card.face else colours.BLUE
    middle = {"x": width / 2, "y": TALL / 2 + 6, "text_anchor": "middle"}
    # Cards are white on any page, and so their faces are no ink.
    face = write(card.face, **middle, font_size=18, class_="face", fill=card.colour)
    card_of = {"class_": "card", "data_card": card.face, "transform": f"translate({x:.2f} {y})"}
    return tag("g", tag("rect", width=width, height=TALL, rx=4, **edge) + face, **card_of)
