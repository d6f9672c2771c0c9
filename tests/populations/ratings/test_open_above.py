"""Ratings that results bound from above: by paths of lost points to an anchor."""

from __future__ import annotations

from itertools import pairwise, permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from populations.ratings.model import Result
from populations.ratings.ranks import open_above
from populations.ratings.results import result_columns


def won(first: str, second: str, *, wins: int = 9, draws: int = 0, losses: int = 0) -> Result[str]:
    return Result(first=first, second=second, seats=(0, 1), wins=wins, draws=draws, losses=losses)


def found(*results: Result[str], links: tuple[Result[str], ...] = ()) -> set[str]:
    return set(
        open_above(result_columns(results), links=result_columns(links), anchors=["bot:random"])
    )


def test_who_lost_to_nobody_has_no_upper_bound() -> None:
    results = [won("a", "bot:random", wins=90, losses=10), won("b", "a")]
    assert found(*results) == {"b"}
    # A single draw against someone who is bounded is enough.
    assert found(*results, won("b", "bot:random", draws=1)) == set()


def test_equals_that_lose_to_each_other_alone_are_all_without_a_bound() -> None:
    results = [won("a", "bot:random", wins=90, losses=10), won("b", "a"), won("c", "a")]
    assert found(*results, won("b", "c", wins=5, losses=5)) == {"b", "c"}
    # One of them lost to the player below: then both are bounded.
    assert found(*results, won("b", "c", wins=5, losses=5), won("a", "c", wins=1)) == set()


def test_what_those_that_are_gone_say_bounds_both_sides() -> None:
    results = [won("a", "bot:random", wins=90, losses=10), won("b", "a")]
    assert found(*results, links=(won("a", "b", wins=3, losses=1),)) == set()


def test_without_an_anchor_nobody_is_high() -> None:
    assert found(won("b", "a")) == set()
    assert found() == set()


@settings(deadline=None, max_examples=100)
@given(
    games=st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 2), st.integers(0, 2)),
        max_size=12,
    )
)
def test_it_is_what_all_paths_say(games: list[tuple[int, int, int, int]]) -> None:
    names = ["bot:random", "a", "b", "c", "d", "e"]
    results = [
        won(names[one], names[two], wins=wins, losses=losses)
        for one, two, wins, losses in games
        if one != two and wins + losses
    ]
    lost = {(r.second, r.first) for r in results if r.wins}
    lost |= {(r.first, r.second) for r in results if r.losses}
    played = {name for pair in lost for name in pair}
    bounded = {
        path[0]
        for length in range(2, 7)
        for path in permutations(names, length)
        if path[-1] == "bot:random" and all(step in lost for step in pairwise(path))
    }
    expected = played - bounded - {"bot:random"} if "bot:random" in played else set()
    assert found(*results) == expected
