"""Choices: numbers with neighbours, and text, true and false without."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from arena.errors import ConfigError
from arena.types import Hyperparameters
from populations.choices import Categories, Choices, figures, kinds, parse_categories
from populations.search_space import parse_search_space

RNG = np.random.default_rng(0)
COLOURS = Categories(choices=("red", "green", "blue"))


def test_true_is_of_another_kind_than_one() -> None:
    found = kinds({"one": 1, "half": 0.5, "flag": True, "colour": "red"})
    assert found == {"one": float, "half": float, "flag": bool, "colour": str}


def test_numbers_move_to_a_neighbour() -> None:
    choices = Choices(choices=(1.0, 2.0, 4.0))
    assert [choices.perturb(2.0, factor=f, rng=RNG) for f in (0.8, 1.0, 1.2)] == [1.0, 2.0, 4.0]
    assert choices.perturb(4.0, factor=1.2, rng=RNG) == 4.0


def test_a_name_stays_or_becomes_any_of_the_others() -> None:
    found = Counter(COLOURS.perturb("green", factor=1.2, rng=RNG) for _ in range(2000))
    assert [found[one] for one in COLOURS.choices] == pytest.approx([500, 1000, 500], abs=100)
    assert {COLOURS.perturb("green", factor=1.0, rng=RNG) for _ in range(20)} == {"green"}
    drawn = {COLOURS.perturb("pink", factor=1.0, rng=RNG) for _ in range(50)}
    assert drawn == {"red", "green", "blue"}
    assert Categories(choices=("red",)).perturb("red", factor=1.2, rng=RNG) == "red"


def test_choices_have_their_order_and_keep_their_types() -> None:
    space: dict[str, dict[str, object]] = {
        "colour": {"choices": ["red", "green", "blue"]},
        "flag": {"choices": [True, False]},
        "size": {"choices": [3, 1]},
    }
    found = parse_search_space(space, start={})
    flag = Categories(choices=(True, False))
    assert found == {"colour": COLOURS, "flag": flag, "size": Choices(choices=(3, 1))}
    assert [COLOURS.place(one) for one in ("blue", "pink", None, 1, True)] == [2, *[None] * 4]
    # 1 equals True, and is another value.
    assert [flag.place(one) for one in (False, True, 0, 1)] == [1, 0, None, None]
    assert [COLOURS.fit(one) for one in ("blue", "pink")] == ["blue", "red"]
    assert [COLOURS.to_unit(one) for one in COLOURS.choices] == [0.0, 0.5, 1.0]


def test_curves_have_the_place_of_text_and_one_for_true() -> None:
    space: dict[str, dict[str, object]] = {"colour": {"choices": ["red", "green", "blue"]}}
    values: Hyperparameters = {"colour": "blue", "flag": True, "size": 3, "name": "unknown"}
    assert figures(values, space) == {"colour": 2, "flag": 1, "size": 3}
    assert type(figures(values, space)["flag"]) is int
    assert figures({"colour": "pink"}, space) == {}


@pytest.mark.parametrize("choices", [["red", "red"], [True, True]])
def test_equal_names_are_refused(choices: list[object]) -> None:
    with pytest.raises(ConfigError, match="must be different, got"):
        parse_categories(choices, key="search_space.x.choices")


@pytest.mark.parametrize("choices", [["red", 1], [True, 1], [True, "red"], [None]])
def test_names_and_numbers_do_not_mix(choices: list[object]) -> None:
    with pytest.raises(ConfigError, match="must be a number, got"):
        parse_search_space({"x": {"choices": choices}}, start={})
