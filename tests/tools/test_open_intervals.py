"""Intervals that are open above, where they are shown."""

from __future__ import annotations

import importlib
from typing import Any

from tools.league.renderers.look import interval
from tools.web.pages import asked

CLOSED: Any = {"rating": 100.0, "rating_low": 50.0, "rating_high": 150.0, "open": False}
OPEN: Any = {"rating": 900.0, "rating_low": 700.4, "rating_high": None, "open": True}
UNRATED: Any = {"rating": None, "rating_low": None, "rating_high": None, "open": False}


def test_their_text_is_the_lower_end_and_a_plus() -> None:
    assert [interval(line) for line in (CLOSED, OPEN, UNRATED)] == ["50..150", "700+", None]
    assert [asked.interval(line) for line in (CLOSED, OPEN, UNRATED)] == ["50 to 150", "700+", "-"]
    card_text = importlib.import_module("arena.export.card_text")
    card = importlib.import_module("arena.export.card")
    assert card_text._strength(card.CardRating(**OPEN)).startswith("700+ (nobody")
