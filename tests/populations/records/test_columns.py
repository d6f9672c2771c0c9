from __future__ import annotations

import pytest

from arena.types import PairScore, Tally
from populations.records.columns import json_reader, to_json

PAIR = PairScore(first=0, second=1, wins=2, draws=0, losses=1)


def test_the_text_is_plain_json() -> None:
    assert to_json(PAIR) == (
        '{"first":0,"second":1,"wins":2,"draws":0,"losses":1,"score_sum":null,"square_sum":null}'
    )


@pytest.mark.parametrize(
    "text",
    [
        "null",
        "[]",
        "{}",
        "{",
        '{"first":0,"second":1,"wins":2,"draws":0}',
        '{"first":0,"second":1,"wins":2,"draws":0,"losses":1,"extra":1}',
        '{"first":0,"second":1,"wins":2,"draws":0,"losses":true}',
        '{"first":0,"second":1,"wins":2,"draws":0,"losses":1.0}',
        '{"first":0,"second":1,"wins":2,"draws":0,"losses":"1"}',
    ],
)
def test_other_data_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        json_reader(PairScore)(text)


def test_numbers_keep_their_kind() -> None:
    tally = Tally(
        entrants=(),
        matches=3,
        pairs=(PAIR,),
        return_sum=(4.0, -0.0, 1e-300),
        return_sum_of_squares=(),
        length_sum=0,
    )
    assert repr(json_reader(Tally)(to_json(tally))) == repr(tally)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1, 2}, b"x"])
def test_what_json_has_not_is_refused(value: object) -> None:
    with pytest.raises(ValueError):
        to_json({"x": [value]})
