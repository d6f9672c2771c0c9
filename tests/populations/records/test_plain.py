from __future__ import annotations

import json

import pytest

from arena.types import PairScore, Seat, Tally
from populations.records.plain import decoder, to_json

PAIR = PairScore(first=0, second=1, wins=2, draws=0, losses=1)


def test_the_text_is_plain_json() -> None:
    assert to_json(PAIR) == (
        '{"first":0,"second":1,"wins":2,"draws":0,"losses":1,"score_sum":null,"square_sum":null}'
    )
    seat = Seat(name="a", side="a", population="p", agents=("x", "y"))
    assert json.loads(to_json({"seat": seat}))["seat"]["agents"] == ["x", "y"]


@pytest.mark.parametrize(
    "text",
    [
        "null",
        "[]",
        "{}",
        '{"first":0,"second":1,"wins":2,"draws":0}',
        '{"first":0,"second":1,"wins":2,"draws":0,"losses":1,"extra":1}',
        '{"first":0,"second":1,"wins":2,"draws":0,"losses":true}',
        '{"first":0,"second":1,"wins":2,"draws":0,"losses":1.0}',
        '{"first":0,"second":1,"wins":2,"draws":0,"losses":"1"}',
    ],
)
def test_other_data_is_refused(text: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        decoder(PairScore)(json.loads(text))


def test_pairs_that_older_releases_wrote_have_no_sums_of_scores() -> None:
    text = '{"first":0,"second":1,"wins":2,"draws":0,"losses":1}'
    assert decoder(PairScore)(json.loads(text)) == PAIR


def test_numbers_keep_their_kind() -> None:
    tally = Tally(
        entrants=(),
        matches=3,
        pairs=(PAIR,),
        return_sum=(4, 4.0, -0.0, 1e-300),
        return_sum_of_squares=(),
        length_sum=0,
    )
    assert repr(decoder(Tally)(json.loads(to_json(tally)))) == repr(tally)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1, 2}, b"x"])
def test_what_json_has_not_is_refused(value: object) -> None:
    with pytest.raises(ValueError):
        to_json({"x": [value]})


@pytest.mark.parametrize("annotation", [int | str, set[int], tuple[int, str]])
def test_an_annotation_without_a_decoder_is_told_at_once(annotation: object) -> None:
    with pytest.raises(TypeError, match="no decoder"):
        decoder(annotation)
