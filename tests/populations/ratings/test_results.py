from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from populations.ratings import result_table
from populations.ratings.model import Result
from populations.ratings.result_table import CHUNK, ResultKey, ResultSnapshot, ResultTable
from populations.ratings.results import (
    Counts,
    ResultColumns,
    merge_columns,
    met_in_both_orders,
    over_seats,
    result_columns,
)

SEATS = st.sampled_from([(0, 0), (0, 1), (1, 0), (0, 2), (2, 2)])
COUNTS = st.integers(0, 100)


@st.composite
def result(draw: st.DrawFn) -> Result[str]:
    """Matches that are won, drawn and lost, or have scores in quarters."""
    first, second = draw(st.permutations("abcd"))[:2]
    seats = draw(SEATS)
    if draw(st.booleans()):
        wins, draws, losses = draw(COUNTS), draw(COUNTS), draw(COUNTS)
        return Result(
            first=first, second=second, seats=seats, wins=wins, draws=draws, losses=losses
        )
    scores = np.array(draw(st.lists(st.integers(0, 4), max_size=20))) / 4
    return Result(
        first=first,
        second=second,
        seats=seats,
        wins=int((scores > 0.5).sum()),
        draws=int((scores == 0.5).sum()),
        losses=int((scores < 0.5).sum()),
        score_sum=float(scores.sum()),
        square_sum=float((scores**2).sum()),
    )


RESULTS = st.lists(result(), max_size=30)


def same(results: Iterable[Result[str]]) -> list[tuple[object, ...]]:
    """What results say, however they say it."""
    return [(r.first, r.second, r.seats, *Counts.from_results(r)) for r in results]


def test_both_views_of_a_result_merge_and_swapped_seats_do_not() -> None:
    seen = [
        Result(first="a", second="b", seats=(0, 1), wins=1, draws=2, losses=3),
        Result(first="b", second="a", seats=(1, 0), wins=30, draws=20, losses=10),
        Result(first="b", second="a", seats=(0, 1), wins=5, draws=0, losses=0),
    ]
    expected = (
        Result(first="a", second="b", seats=(0, 1), wins=11, draws=22, losses=33),
        Result(first="b", second="a", seats=(0, 1), wins=5, draws=0, losses=0),
    )
    assert tuple(merge_columns(result_columns(seen), entrants=("a", "b"))) == expected
    assert tuple(merge_columns(result_columns(seen[::-1]), entrants=("a", "b"))) == expected


@settings(deadline=None)
@given(RESULTS)
def test_merging_columns_adds_up_both_views(results: list[Result[str]]) -> None:
    merged = merge_columns(result_columns(results), entrants=("a", "b", "c", "d"))
    sums: dict[tuple[tuple[int, str], tuple[int, str]], Counts] = {}
    for one in results:
        counts = Counts.from_results(one)
        sides = (one.seats[0], one.first), (one.seats[1], one.second)
        # The lower seat comes first; for equal seats, the first name.
        if sides[0] > sides[1]:
            sides, counts = (sides[1], sides[0]), counts.turned()
        before = sums.get(sides, Counts(0, 0, 0, 0, 0))
        sums[sides] = Counts(*(a + b for a, b in zip(before, counts, strict=True)))
    found = {
        ((one.seats[0], one.first), (one.seats[1], one.second)): Counts.from_results(one)
        for one in merged
    }
    assert found == sums
    assert len(merged) == len(tuple(merged)) == len(sums)


@settings(deadline=None)
@given(RESULTS)
@pytest.mark.slow
def test_columns_hold_what_they_were_made_of(results: list[Result[str]]) -> None:
    columns = result_columns(results)
    assert same(columns) == same(results)
    assert result_columns(columns) is columns


def test_merged_columns_have_the_order_that_is_asked_for() -> None:
    results = [Result(first="b", second="a", seats=(0, 0), wins=1, draws=0, losses=2)]
    merged = merge_columns(result_columns(results), entrants=("c", "a", "b"))
    assert merged.entrants == ("c", "a", "b")
    assert (merged.first.tolist(), merged.second.tolist()) == ([1], [2])
    assert merged.counts.tolist() == [[2, 0, 1]]


def test_some_results_can_be_kept() -> None:
    columns = ResultColumns(
        entrants=("a", "b", "c"),
        first=np.array([0, 1]),
        second=np.array([1, 2]),
        seats=np.array([[0, 1], [1, 0]]),
        counts=np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
        sums=np.array([[2.0, 1.5], [6.5, 5.25]]),
    )
    kept = columns.where(np.array([False, True]))
    assert list(kept) == [Result(first="b", second="c", seats=(1, 0), wins=4, draws=5, losses=6)]


def test_a_model_of_wins_and_losses_learns_parts_of_them_where_there_are_margins() -> None:
    results = [
        Result(first="a", second="b", seats=(0, 1), wins=3, draws=2, losses=5),
        # The scores are 0.75 (four times), 0.5 and 0.0, which sum to 3.5.
        Result(
            first="a",
            second="c",
            seats=(0, 1),
            wins=4,
            draws=1,
            losses=1,
            score_sum=3.5,
            square_sum=2.5,
        ),
    ]
    columns = result_columns(results)
    assert columns.outcomes.tolist() == [[3, 2, 5], [3.5, 0, 2.5]]
    assert columns.matches.tolist() == [10, 6]
    # From c's view the scores are 0.25 four times, 0.5 and 1.0.
    turned = merge_columns(columns, entrants=("c", "b", "a")).sums.tolist()
    assert turned == [[3.5, 2.5], [4.0, 3.5]] or turned == [[2.5, 1.5], [6.0, 5.5]]


def played(first: str, second: str, seats: tuple[int, int], wins: int, losses: int) -> Result[str]:
    return Result(first=first, second=second, seats=seats, wins=wins, draws=0, losses=losses)


def slack(columns: ResultColumns[str]) -> float:
    return float((columns.scores - columns.squares)[0])


def test_a_score_over_both_seats_is_the_mean_of_the_scores_in_each() -> None:
    # a wins 9 of 10 as first and 1 of 10 as second: even over both seats, whatever the order is
    # worth.
    both = [played("a", "b", (0, 1), 9, 1), played("b", "a", (0, 1), 9, 1)]
    pooled = over_seats(result_columns(both))
    (row,) = list(pooled)
    assert (row.first, row.second, row.seats) == ("a", "b", (0, 0))
    assert (row.wins, row.losses) == pytest.approx((10.0, 10.0))
    # n/4 (p_0 - p_1)^2 = 5 x 0.64, less the variance of a match within a seat, 0.09.
    assert slack(pooled) == pytest.approx(3.2 - 0.09)
    # Equal numbers in both orders count as they are; 10 in one order are scaled to the other's 30.
    uneven = over_seats(
        result_columns([played("a", "b", (0, 1), 27, 3), played("a", "b", (1, 0), 1, 9)])
    )
    assert uneven.scores / uneven.matches == pytest.approx([0.5])
    assert uneven.matches == pytest.approx([4.0 / (1 / 30 + 1 / 10)])


def test_where_seats_decide_nothing_pooling_finds_no_slack_in_the_mean() -> None:
    rng, found = np.random.default_rng(2), []
    for _ in range(4000):
        home, away = rng.binomial(8, 0.7, size=2).tolist()
        rows = [played("a", "b", (0, 1), home, 8 - home), played("b", "a", (0, 1), 8 - away, away)]
        found.append(slack(over_seats(result_columns(rows))))
    assert np.mean(found) == pytest.approx(0.0, abs=0.03)


def test_two_who_met_in_one_order_only_keep_their_results() -> None:
    rows = [played("b", "a", (0, 1), 6, 2), played("a", "c", (0, 1), 1, 7)]
    columns = result_columns(rows)
    assert not met_in_both_orders(columns)
    pooled = over_seats(columns)
    assert [(r.first, r.second, r.wins, r.losses) for r in pooled] == [
        ("b", "a", 6.0, 2.0),
        ("a", "c", 1.0, 7.0),
    ]
    assert pooled.squares == pytest.approx(pooled.scores)


def test_orders_are_known_however_results_are_written() -> None:
    rows = [played("a", "b", (0, 1), 1, 0), played("a", "b", (1, 0), 1, 0)]
    assert met_in_both_orders(result_columns(rows))
    assert not met_in_both_orders(result_columns([rows[0], played("b", "a", (1, 0), 1, 0)]))
    assert not met_in_both_orders(result_columns([*rows, played("a", "b", (0, 2), 1, 0)]))
    assert met_in_both_orders(result_columns([]))


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=2, max_size=2))
def test_sums_of_squares_never_fall_below_0(scores: list[tuple[int, int]]) -> None:
    (won, lost), (more, less) = scores
    if not (won + lost and more + less):
        return
    rows = [played("a", "b", (0, 1), won, lost), played("a", "b", (1, 0), more, less)]
    pooled = over_seats(result_columns(rows))
    assert pooled.squares[0] >= -1e-9


Table = dict[ResultKey[int], Counts]

KEYS = st.tuples(
    st.integers(0, 5), st.integers(0, 5), st.tuples(st.integers(0, 3), st.integers(0, 3))
)
STEPS = st.lists(st.one_of(st.none(), st.tuples(KEYS, st.integers(0, 9) | st.none())), max_size=60)
"""Keys and counts that are set (None: that are deleted); None: a snapshot is taken."""


def counts_of(number: float) -> Counts:
    """Counts that are all different, so that no column is taken for another."""
    return Counts(number, number + 0.25, number + 0.5, points=number + 2, squares=number + 1)


def selected(snapshot: ResultSnapshot[int], names: set[int]) -> Table:
    """What a snapshot says about some names, as a dictionary."""
    columns = snapshot.select(names)
    found: Table = {}
    for first, second, seats, counts, sums in zip(
        columns.first.tolist(),
        columns.second.tolist(),
        columns.seats.tolist(),
        columns.counts.tolist(),
        columns.sums.tolist(),
        strict=True,
    ):
        key = (columns.entrants[first], columns.entrants[second], (seats[0], seats[1]))
        assert key not in found
        found[key] = Counts(*counts, *sums)
    return found


@settings(deadline=None)
@given(STEPS, st.sets(st.integers(0, 7)), st.integers(1, 4))
def test_a_table_and_its_snapshots_are_dictionaries_and_copies_of_them(
    steps: list[tuple[ResultKey[int], int | None] | None], names: set[int], chunk: int
) -> None:
    table: ResultTable[int] = ResultTable()
    expected: Table = {}
    snapshots: list[tuple[ResultSnapshot[int], Table]] = []
    with pytest.MonkeyPatch.context() as patch:
        # A chunk has few rows, so most changes affect a chunk that a snapshot shares.
        patch.setattr(result_table, "CHUNK", chunk)
        for step in steps:
            if step is None:
                snapshots.append((table.snapshot(), dict(expected)))
                continue
            key, number = step
            if number is not None:
                table[key] = expected[key] = counts_of(number)
            elif key in expected:
                del table[key], expected[key]
            else:
                with pytest.raises(KeyError):
                    del table[key]
            assert len(table) == len(expected)
        assert list(table.items()) == list(expected.items())
        assert list(table.rows()) == list(expected.items())
        for name in range(6):
            # The order is newest pair first, independent of later changes of its counts.
            own = [(key, expected[key]) for key in reversed(expected) if name in key[:2]]
            assert list(dict(table.of_entrant(name)).items()) == own
        for snapshot, then in snapshots:
            chosen = {key: counts for key, counts in then.items() if names >= {*key[:2]}}
            # The order is that of the first setting, too.
            assert list(selected(snapshot, names).items()) == list(chosen.items())


@pytest.mark.parametrize(
    ("num_names", "seats"),
    [
        (5, [(0, 0), (0, 1), (1, 0), (16, 0), (0, 255), (255, 0), (255, 255)]),
        # In a free-for-all each agent is a side with a seat of its own.
        (3, [(0, 258), (1, 2), (256, 257), (0, 1), (495, 0), (239, 256), (0, 495)]),
    ],
)
def test_names_their_order_and_seats_tell_results_apart(
    num_names: int, seats: list[tuple[int, int]]
) -> None:
    table: ResultTable[int] = ResultTable()
    names = range(num_names)
    keys = [(first, second, at) for first in names for second in names for at in seats]
    for number, key in enumerate(keys):
        table[key] = counts_of(number)
    assert [table[key].wins for key in keys] == list(range(len(keys)))
    assert list(table) == keys


@pytest.mark.parametrize("key", [("a", "c", (0, 1)), ("c", "a", (0, 1)), ("a", "b", (0, 2))])
def test_a_key_that_was_never_set_is_not_there(key: ResultKey[str]) -> None:
    table: ResultTable[str] = ResultTable()
    table["a", "b", (0, 1)] = counts_of(1)
    assert key not in table
    assert table.get(key) is None
    with pytest.raises(KeyError):
        table[key]
    assert list(table) == [("a", "b", (0, 1))], "to ask for a name does not add it"
    assert len(table.snapshot().select({"a", "b", "c"}).entrants) == 2


def test_a_table_most_of_which_was_deleted_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_table, "CHUNK", 2)
    table: ResultTable[int] = ResultTable()
    keys = [(number, number + 1, (0, 1)) for number in range(12)]
    for number, key in enumerate(keys):
        table[key] = counts_of(number)
    for key in keys[:7]:
        del table[key]
    # Of twelve rows five are left, with two per chunk.
    assert table.without_deleted() is table
    snapshot = table.snapshot()
    del table[keys[7]]
    small = table.without_deleted()
    assert small is not table
    assert (
        list(small.items())
        == list(table.items())
        == [(key, counts_of(number)) for number, key in enumerate(keys) if number > 7]
    )
    assert selected(small.snapshot(), set(range(20))) == dict(small)
    assert list(selected(snapshot, set(range(20)))) == keys[7:]


def test_only_names_that_are_chosen_are_handed_on() -> None:
    table: ResultTable[str] = ResultTable()
    for number, pair in enumerate(["ab", "cd", "bd", "db", "da"]):
        table[pair[0], pair[1], (0, 1)] = counts_of(number)
    columns = table.snapshot().select(["d", "b", "nobody"])
    assert columns.entrants == ("d", "b")
    assert (columns.first.tolist(), columns.second.tolist()) == ([1, 0], [0, 1])
    assert columns.counts[:, 0].tolist() == [2.0, 3.0]
    assert columns.sums.tolist() == [[4.0, 3.0], [5.0, 4.0]]


@settings(deadline=None)
@given(RESULTS)
@pytest.mark.slow
def test_a_table_is_the_dictionary_that_was_put_into_it(results: list[Result[str]]) -> None:
    table: ResultTable[str] = ResultTable()
    expected: dict[tuple[str, str, tuple[int, int]], Counts] = {}
    for r in results:
        key, counts = (r.first, r.second, r.seats), Counts.from_results(r)
        table[key] = expected[key] = counts
    assert table == expected
    assert dict(table.items()) == expected
    assert list(table) == list(expected)
    for key, counts in expected.items():
        assert table[key] == counts
    for name in {name for key in expected for name in key[:2]} | {"nobody"}:
        assert dict(table.of_entrant(name)) == {
            key: counts for key, counts in expected.items() if name in key[:2]
        }
        assert len(list(table.of_entrant(name))) == len(dict(table.of_entrant(name)))
    chosen = {"a", "b", "c"}
    selected = table.snapshot().select(chosen)
    assert {(r.first, r.second, r.seats): Counts.from_results(r) for r in selected} == {
        key: counts for key, counts in expected.items() if chosen >= {*key[:2]}
    }
    assert set(selected.entrants) <= chosen


def test_a_table_grows_and_its_snapshots_do_not() -> None:
    table: ResultTable[int] = ResultTable()
    known = table.snapshot()
    for k in range(1000):
        table[(k, k + 1, (0, 1))] = Counts(k, 0.0, 1.0, points=k, squares=k)
    assert len(known.select(range(1001))) == 0
    known = table.snapshot()
    table[(0, 1, (0, 1))] = Counts(7.0, 7.0, 7.0, points=10.5, squares=8.75)
    table[(2000, 0, (0, 1))] = Counts(1.0, 0.0, 0.0, points=1.0, squares=1.0)
    assert len(table) == 1001
    assert table[(999, 1000, (0, 1))] == (999.0, 0.0, 1.0, 999.0, 999.0)
    selected = known.select(range(2001))
    assert len(selected) == 1000
    assert selected.counts[0].tolist() == [0.0, 0.0, 1.0]
    with pytest.raises(KeyError):
        table[(1, 0, (0, 1))]


def test_a_snapshot_copies_nothing_and_a_change_after_it_one_chunk() -> None:
    table: ResultTable[int] = ResultTable()
    for k in range(3 * CHUNK + 5):
        table[(k, k + 1, (0, 1))] = Counts(k, 0.0, 1.0, k, k)
    first, second = table.snapshot(), table.snapshot()
    table[(CHUNK, CHUNK + 1, (0, 1))] = Counts(-1.0, 0.0, 0.0, -1.0, -1.0)
    table[(CHUNK + 1, CHUNK + 2, (0, 1))] = Counts(-2.0, 0.0, 0.0, -2.0, -2.0)
    third = table.snapshot()
    is_same = [a.counts is b.counts for a, b in zip(second.chunks, third.chunks, strict=True)]
    assert is_same == [True, False, True, True]
    assert all(a is b for a, b in zip(first.chunks, second.chunks, strict=True))
    names = range(3 * CHUNK + 6)
    assert first.select(names).counts[:, 0].tolist() == list(range(3 * CHUNK + 5))
    assert third.select(names).counts[CHUNK : CHUNK + 2, 0].tolist() == [-1.0, -2.0]
    pairs = [key[:2] for key, _ in table.of_entrant(CHUNK)]
    assert pairs == [(CHUNK, CHUNK + 1), (CHUNK - 1, CHUNK)]
