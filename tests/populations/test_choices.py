"""Choices: numbers with neighbours, and names that numbers stand for."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from arena.errors import ConfigError
from populations.choices import Categories, Choices, code_of, parse_categories, with_names
from populations.search_space import parse_search_space

RNG = np.random.default_rng(0)
COLOURS = Categories(choices=(0, 1, 2), names=("red", "green", "blue"))


def test_numbers_move_to_a_neighbour() -> None:
    choices = Choices(choices=(1.0, 2.0, 4.0))
    assert [choices.perturb(2.0, factor=f, rng=RNG) for f in (0.8, 1.0, 1.2)] == [1.0, 2.0, 4.0]
    assert choices.perturb(4.0, factor=1.2, rng=RNG) == 4.0


def test_a_name_stays_or_becomes_any_of_the_others() -> None:
    found = Counter(COLOURS.perturb(1, factor=1.2, rng=RNG) for _ in range(2000))
    assert [found[code] for code in range(3)] == pytest.approx([500, 1000, 500], abs=100)
    assert {COLOURS.perturb(1, factor=1.0, rng=RNG) for _ in range(20)} == {1}
    assert {COLOURS.perturb(7, factor=1.0, rng=RNG) for _ in range(50)} == {0, 1, 2}
    assert Categories(choices=(0,), names=("red",)).perturb(0, factor=1.2, rng=RNG) == 0


def test_numbers_stand_for_names_in_the_order_of_the_list() -> None:
    space: dict[str, dict[str, object]] = {
        "colour": {"choices": ["red", "green", "blue"]},
        "flag": {"choices": [True, False]},
        "size": {"choices": [3, 1]},
    }
    found = parse_search_space(space, start={})
    assert found["colour"] == COLOURS
    assert found["flag"] == Categories(choices=(1, 0), names=(True, False))
    assert found["size"] == Choices(choices=(3, 1))
    values = {"colour": 2, "flag": 0, "size": 3, "gamma": 1.0}
    assert with_names(values, space) == {"colour": "blue", "flag": False, "size": 3, "gamma": 1.0}
    codes = [code_of(v, space[n]) for n, v in (("colour", "blue"), ("flag", True), ("size", 3))]
    assert codes == [2, 1, 3]
    assert [code_of(v, space["colour"]) for v in ("pink", None, 1, True)] == [None] * 4


@pytest.mark.parametrize("choices", [["red", "red"], [True, True]])
def test_equal_names_are_refused(choices: list[object]) -> None:
    with pytest.raises(ConfigError, match="must be different, got"):
        parse_categories(choices, key="search_space.x.choices")


@pytest.mark.parametrize("choices", [["red", 1], [True, 1], [True, "red"], [None]])
def test_names_and_numbers_do_not_mix(choices: list[object]) -> None:
    with pytest.raises(ConfigError, match="must be a number, got"):
        parse_search_space({"x": {"choices": choices}}, start={})
