"""Values as people read them; among them intervals that are open above."""

from __future__ import annotations

import importlib
from typing import Any, get_args

import pytest

from populations.views.charts.parts import upper_ends
from populations.views.parts import Kind, Line, Room
from tools.show.values import WRITTEN, line_text, text, text_of, value_of

CLOSED: Any = {"rating": 100.0, "rating_low": 50.0, "rating_high": 150.0, "open": False}
OPEN: Any = {"rating": 900.0, "rating_low": 700.4, "rating_high": None, "open": True}
UNRATED: Any = {"rating": None, "rating_low": None, "rating_high": None, "open": False}


def test_they_are_drawn_past_all_others() -> None:
    assert upper_ends([CLOSED, OPEN, UNRATED]) == [150.0, 900.0 + 0.1 * (900.0 - 50.0), None]
    assert upper_ends([]) == []


def test_their_text_is_the_lower_end_and_a_plus() -> None:
    room = Room(width=80)
    values = [value_of("rating", "interval", line) for line in (CLOSED, OPEN, UNRATED)]
    assert [text(one, "interval", room) for one in values] == ["50..150", "700+", "-"]
    # A rating just below 0 is shown without a minus.
    assert (text(-0.3, "elo", room), text((-0.4, 9.0), "interval", room)) == ("0", "0..9")
    card_text = importlib.import_module("arena.export.card_text")
    card = importlib.import_module("arena.export.card")
    assert card_text.rating_text(card.CardRating(**OPEN)).startswith("700+ (nobody")


def test_each_kind_is_written() -> None:
    assert set(WRITTEN) == set(get_args(Kind))


@pytest.mark.parametrize(
    ("cell", "written"), [(None, "-"), (0.5, "0.5"), (123.4, "123"), (7, "7"), ("a\x1b", "a\\x1b")]
)
def test_cells_are_readable(cell: object, written: str) -> None:
    assert text_of(cell) == written


def test_a_line_writes_its_values_by_their_kinds() -> None:
    steps = [
        Line("{policy:player} at {begin:count}", {"policy": f"a/p00{n}", "begin": 10**6})
        for n in (1, 2)
    ]
    row = {"path": steps, "rating": 12.6, "reason": "{path} \x1b[31m"}
    line = Line("{path:path}, {rating:signed} Elo → {reason}", row, hint="--wide")
    wide, narrow = Room(width=80, populations=("a",)), Room(width=80, is_ascii=True)
    assert line_text(line, wide) == "p001 at 1M → p002 at 1M, +13 Elo → {path} \\x1b[31m (--wide)"
    # Braces in a stranger's text are not fields of the template.
    assert line_text(line, narrow).startswith("p001 at 1M > p002 at 1M, +13 Elo -> {path}")
