"""Colours that can be read, told apart, and kept."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from populations.views.charts.parts import AREAS, COLOURS, PALETTE, Reader
from tools.web.pages.page_request import colours_of

LOOKS = ("light", "dark")

# Linear RGB as seen without long or middle cones; source: Machado, Oliveira and Fernandes, 2009.
BLIND = {
    "nobody": np.eye(3),
    "protanopia": np.array(
        [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]
    ),
    "deuteranopia": np.array(
        [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]
    ),
}

# The matrices are those of Oklab (Ottosson, 2020).
CONES = np.array([[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]])
LAB = np.array([[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]])


def linear(colour: str) -> Any:
    """Return a colour as linear RGB."""
    parts = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours (WCAG 2.2)."""
    low, high = sorted(float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("look", LOOKS)
def test_text_is_readable_and_areas_can_be_seen(look: str) -> None:
    members = {name: getattr(one, look) for name, one in COLOURS.items()}
    # The contrast matters for names at the ends of lines, and for names on bars, in paper colour.
    for name in (*PALETTE, "grey"):
        assert contrast(members[name], members["paper"]) >= 4.5, name
    for name in ("pale", *(AREAS if look == "dark" else ())):
        assert contrast(members[name], members["paper"]) >= 3.0, name


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("who", BLIND)
def test_colour_blind_readers_tell_them_apart(look: str, who: str) -> None:
    seen = {
        name: LAB
        @ np.cbrt(CONES @ np.clip(BLIND[who] @ linear(getattr(COLOURS[name], look)), 0, 1))
        for name in PALETTE
    }
    nearest = min(float(np.linalg.norm(seen[a] - seen[b])) for a, b in combinations(PALETTE, 2))
    # The bound is three times the smallest visible distance (.02).
    assert nearest > 0.06


def of(**sizes: int) -> dict[str, str]:
    """Return the colours of a run with so many policies, which the last one leads."""
    populations = {
        name: [
            {"player": f"{name}/p{place:03d}", "kind": "policy"} for place in reversed(range(size))
        ]
        for name, size in sizes.items()
    }
    return colours_of({"populations": populations})


def test_a_few_policies_have_a_colour_each_in_all_populations() -> None:
    few = of(a=3, b=4)
    assert [few[f"a/p00{n}"] for n in range(3)] == [*PALETTE[:3]]
    assert [few[f"b/p00{n}"] for n in range(4)] == [*PALETTE[3:]]


def test_of_many_the_best_have_one_and_the_others_are_grey_on_all_pages() -> None:
    many = of(a=30, b=2)
    assert {one: colour for one, colour in many.items() if colour != "grey"} == {
        **{f"a/p{29 - place:03d}": PALETTE[place] for place in range(5)},
        "b/p000": PALETTE[0],
        "b/p001": PALETTE[1],
    }
    page = Reader(["a", "b"], colours=many)
    # In a chart without the best policies no other one gets a bright colour.
    assert page.coloured(["a/p003", "a/p029", "a/p002"]) == {"a/p029": PALETTE[0]}
    # Of two policies with one colour the better one keeps it; other subjects get a free colour.
    assert page.coloured(["b/p000", "a/p029", "run"]) == {"b/p000": PALETTE[0], "run": PALETTE[5]}
    assert page.coloured([]) == {}
