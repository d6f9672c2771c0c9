"""Terms of a fit: stages, priors and results as rows of parameters, against plain dictionaries."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from populations.ratings.design import (
    Design,
    Time,
    check_lineage,
    make_design,
    slices,
)
from populations.ratings.model import Result
from populations.ratings.results import ResultColumns, merge_columns, result_columns

DEVIATIONS = {
    "root_deviation": 1000.0,
    "child_deviation": 200.0,
    "advantage_deviation": 400.0,
    "stage_deviation": 50.0,
}


def played(
    pairs: Sequence[tuple[str, str, tuple[int, int]]], *, entrants: Sequence[str]
) -> ResultColumns[str]:
    """Merged results of a match between each of some pairs."""
    results = [
        Result(first=first, second=second, seats=seats, wins=1, draws=0, losses=0)
        for first, second, seats in pairs
    ]
    return merge_columns(result_columns(results), entrants=tuple(entrants))


NOTHING = played([], entrants=())


def term(design: Design, row: int, names: Sequence[str], *, num_results: int) -> list[str]:
    """A term's parameters by name, without those that are none."""
    signs = "+-+-" if row < num_results else "+--+"
    size = len(names)
    return [
        sign + names[parameter]
        for sign, parameter in zip(signs, design.index[row].tolist(), strict=True)
        if parameter != size
    ]


def test_the_terms_of_a_fit_by_hand() -> None:
    results = played(
        [("anchor", "a", (0, 1)), ("b", "c", (0, 0)), ("c", "d", (2, 1)), ("a", "e", (0, 1))],
        entrants=("anchor", "a", "b", "c", "d", "e"),
    )
    design = make_design(
        results,
        # The parent of an anchor is ignored.
        parents={"c": "b", "d": "anchor", "anchor": "e"},
        times={"a": ("p", 1.0), "b": ("p", 2.0), "c": ("p", 2.0), "d": ("q", 7.0)},
        anchors=["anchor"],
        links=played(
            [("e", "b", (0, 0)), ("anchor", "d", (0, 0))],
            entrants=("anchor", "a", "b", "c", "d", "e"),
        ),
        **DEVIATIONS,
    )
    # p has two stages and q has one; each pair of seats has a column for its order.
    names = ["a", "b", "c", "d", "e", "01", "12", "p1", "p2", "q7"]
    assert design.free.tolist() == [1, 2, 3, 4, 5]
    assert design.seats == ((0, 1), (1, 2))
    terms = [term(design, row, names, num_results=len(results)) for row in range(len(design.index))]
    assert terms[: len(results)] == [
        # theta_first - theta_second + advantage; the anchor is 0.
        ["-a", "+01"],
        ["+a", "-e", "+01"],
        ["+b", "-c"],
        # The lower seat is first: d had seat 1.
        ["+d", "-c", "+12"],
    ]
    assert terms[len(results) :] == [
        # A root's prior is around its stage, and so are those of a child and its parent.
        ["+a", "-p1"],
        ["+b", "-p2"],
        ["+c", "-b", "-p2", "+p2"],
        # An anchor has no stage.
        ["+d", "-q7"],
        ["+e"],
        ["+01"],
        ["+12"],
        # The stages of each group are a random walk from 0.
        ["+p1"],
        ["+p2", "-p1"],
        ["+q7"],
        # Links do not depend on stages.
        ["-d"],
        ["+b", "-e"],
    ]
    assert design.deviations.tolist() == [1000, 1000, 200, 200, 1000, 400, 400, 50, 50, 50]
    # There are fewer entrants than groups, so each time is one group.
    assert design.groups.tolist() == [0, 1, 1, 2, -1, -1, -1, -1, -1, -1]
    # c and d have priors relative to parents; of the others a and b have a time.
    assert [terms[row][0] for row in design.children] == ["+c", "+d"]
    assert [terms[row][0] for row in design.roots] == ["+a", "+b"]
    # c is as old as b; the anchor's time is unknown.
    assert np.array_equal(design.doublings, [0.0, np.nan], equal_nan=True)


def test_newer_players_have_a_parameter_in_common() -> None:
    entrants = ("anchor", "a", "b", "c")
    results = played([("a", "b", (0, 0)), ("c", "anchor", (0, 0))], entrants=entrants)
    times = {"a": ("p", 49.0), "b": ("q", 50.0), "c": ("p", 0.0)}

    def made(recency: float, times: Mapping[str, Time]) -> Design:
        return make_design(
            results,
            parents={},
            times=times,
            anchors=["anchor"],
            recency_deviation=recency,
            **DEVIATIONS,
            links=played([("b", "c", (0, 0))], entrants=entrants),
        )

    design = made(30.0, times)
    # The columns are a, b and c, three stages, then the recency.
    assert design.recency == 6
    assert design.deviations.tolist() == [1000, 1000, 1000, 50, 50, 50, 30]
    # 0.02 of the longest time counts a half; an anchor is as old as an untrained player.
    assert design.ages.tolist() == [0.0, 0.98, 1.0, 0.0]
    np.testing.assert_allclose(design.newer, [0.0, -0.5], atol=1e-12)
    assert design.index[:2].tolist() == [[7, 2, 7, 6], [0, 1, 7, 6]]
    # The recency's prior is around 0. Links do not depend on it.
    assert design.index[8].tolist() == [6, 7, 7, 7]
    assert design.index[9].tolist() == [1, 2, 7, 7]
    for other in (made(0.0, times), made(30.0, {})):
        assert other.recency == len(other.deviations)
        assert other.index[:2, 3].tolist() == [other.recency] * 2


def test_the_doublings_of_a_lines_time_by_hand() -> None:
    times = {
        "a": ("p", 0.0), "b": ("p", 100.0), "c": ("p", 150.0), "d": ("p", 600.0), "e": ("q", 700.0)
    }  # fmt: skip
    children = {"b": "a", "c": "b", "d": "c", "e": "d", "f": "e", "a": "a'"}
    design = make_design(
        played([], entrants=("a", "a'", "b", "c", "d", "e", "f")),
        parents=children,
        times=times,
        anchors=[],
        links=played([], entrants=("a", "a'", "b", "c", "d", "e", "f")),
        **DEVIATIONS,
    )
    # a: its parent's time is unknown; b: from the beginning; c: log2(150 / 100); d: occurs twice
    # and counts once; e: belongs to another population; f: has no time.
    nothing = np.nan
    assert np.array_equal(
        design.doublings, [nothing, 1.0, np.log2(1.5), 1.0, nothing, nothing], equal_nan=True
    )


ENTRANTS = tuple("abcdef")
SEATS = st.tuples(st.integers(0, 2), st.integers(0, 2))
PAIRS = st.lists(
    st.tuples(st.sampled_from(ENTRANTS), st.sampled_from(ENTRANTS), SEATS).filter(
        lambda pair: pair[0] != pair[1]
    ),
    max_size=8,
)
TIMES = st.dictionaries(
    st.sampled_from(ENTRANTS), st.tuples(st.sampled_from("pq"), st.integers(0, 4).map(float))
)
PARENTS = st.dictionaries(st.integers(1, 5), st.integers(0, 4), max_size=5).map(
    lambda found: {ENTRANTS[child]: ENTRANTS[min(of, child - 1)] for child, of in found.items()}
)
"""A parent comes before its child, so there are no circles."""


def walked(design: Design, free: Sequence[str], theta: Mapping[str, float]) -> list[float]:
    """Values of all terms, from numbers for the entrants and 0.5, 0.75, ... for all others."""
    others = len(design.deviations) - len(free)
    values = [theta[name] for name in free] + [0.5 + 0.25 * i for i in range(others)] + [0.0]
    signs = np.ones((len(design.index), 4))
    signs[:, 1] = -1.0
    signs[len(design.index) - len(design.deviations) :, 2] = -1.0
    return list((np.array(values)[design.index] * signs).sum(axis=1))


@settings(deadline=None, max_examples=50)
@given(PAIRS, PARENTS, TIMES, st.sets(st.sampled_from(ENTRANTS), max_size=3))
def test_terms_are_the_differences_that_the_model_names(
    pairs: list[tuple[str, str, tuple[int, int]]],
    parents: dict[str, str],
    times: dict[str, Time],
    anchors: set[str],
) -> None:
    results = played(pairs, entrants=ENTRANTS)
    design = make_design(
        results, parents=parents, times=times, anchors=anchors, links=NOTHING, **DEVIATIONS
    )
    free = [name for name in ENTRANTS if name not in anchors]
    theta = {name: 0.0 if name in anchors else 2.0**i for i, name in enumerate(ENTRANTS)}
    others = iter(0.5 + 0.25 * i for i in range(100))
    advantage = {seats: next(others) for seats in design.seats}
    # A group has at most 5 times, so each time is a stage.
    when = sorted(set(times.values()))
    stage = {time: next(others) for time in when}
    before = {
        time: next((stage[t] for t in reversed(when) if t[0] == time[0] and t < time), 0.0)
        for time in when
    }
    gain = {
        name: stage[times[name]] if name in times and name not in anchors else 0.0
        for name in ENTRANTS
    }
    expected = [
        theta[result.first] - theta[result.second] + advantage.get(result.seats, 0.0)
        for result in results
    ]
    for name in free:
        parent = parents.get(name)
        mean = theta[parent] - gain[parent] if parent is not None else 0.0
        expected.append(theta[name] - gain[name] - mean)
    expected += advantage.values()
    expected += [stage[time] - before[time] for time in when]
    assert walked(design, free, theta) == pytest.approx(expected)
    priors = design.index[len(results) :, 0]
    assert priors.tolist() == list(range(len(design.deviations))), "one prior for each parameter"
    named = [free[row - len(results)] for row in design.children]
    assert named == [name for name in free if name in parents]
    named = [free[row - len(results)] for row in design.roots]
    assert named == [name for name in free if name in times and name not in parents]


def test_stages_by_hand() -> None:
    times = [("q", 5.0), None, ("p", 4.0), ("p", 1.0), ("p", 3.0), ("p", 2.0), ("q", 5.0)]
    # Four players of p are in two stages, from 1 and from 3; q has one time.
    stage, before = slices(times, number=2)
    assert stage.tolist() == [2, -1, 1, 0, 1, 0, 2]
    assert before.tolist() == [-1, 0, -1]
    stage, before = slices(times, number=3)
    # The borders are at the indices 0, 1 and 2 of the sorted times: 1, 2 and 3.
    assert stage.tolist() == [3, -1, 2, 0, 2, 1, 3]
    assert before.tolist() == [-1, 0, 1, -1]


MAYBE_TIMES = st.lists(
    st.one_of(st.none(), st.tuples(st.sampled_from("pqr"), st.integers(0, 12).map(float))),
    max_size=40,
)


@given(MAYBE_TIMES, st.integers(1, 6))
def test_stages_follow_time_in_each_group(times: list[Time | None], number: int) -> None:
    stage, before = slices(times, number=number)
    assert [k == -1 for k in stage] == [time is None for time in times]
    known = [(time, int(k)) for time, k in zip(times, stage, strict=True) if time is not None]
    assert {k for _, k in known} == set(range(len(before))), "no stage is empty"
    first: dict[str, int] = {}
    for (group, when), k in sorted(known):
        first.setdefault(group, k)
        # Stages of a group are consecutive, and the stage before is of the same group.
        assert before[k] == (-1 if k == first[group] else k - 1)
        for (other, then), at in known:
            if other == group:
                assert then <= when or at >= k
                assert then != when or at == k
            else:
                assert at != k
    for group in first:
        assert len({k for time, k in known if time[0] == group}) <= number


@given(st.lists(st.integers(0, 1000), unique=True, min_size=1, max_size=40), st.integers(1, 12))
def test_stages_of_different_times_differ_by_one_entrant_at_most(
    whens: list[int], number: int
) -> None:
    sizes = Counter(slices([("p", float(when)) for when in whens], number=number)[0].tolist())
    assert len(sizes) == min(number, len(whens))
    assert max(sizes.values()) - min(sizes.values()) <= 1


@given(st.dictionaries(st.integers(0, 7), st.integers(0, 7)))
def test_a_circle_of_parents_is_found_and_one_in_it_named(parents: dict[int, int]) -> None:
    circle = set()
    for start in parents:
        at: int | None = parents[start]
        # With eight names a walk that has not returned by then is not in a cycle.
        for _ in range(8):
            if at == start:
                circle.add(start)
            at = parents.get(at) if at is not None else None
    if not circle:
        check_lineage(parents)
        return
    with pytest.raises(ValueError, match="parents must not form a cycle, but") as raised:
        check_lineage(parents)
    found = re.search(r"but (\d) is its own ancestor", str(raised.value))
    assert found is not None
    assert int(found[1]) in circle


def test_a_lineage_of_a_hundred_thousand_is_checked_once() -> None:
    class Counted(dict[int, int]):
        asked = 0

        def __getitem__(self, key: int) -> int:
            self.asked += 1
            return super().__getitem__(key)

    # The youngest come first, so that each child's walk starts where the last one ended.
    parents = Counted({k: k - 1 for k in range(100_000, 0, -1)})
    check_lineage(parents)
    assert parents.asked == 100_000
