"""Results of a whole run: a mapping whose snapshots stay as they were."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from populations.ratings import result_table
from populations.ratings.model import Result
from populations.ratings.result_table import CHUNK, ResultKey, ResultSnapshot, ResultTable
from populations.ratings.results import Counts
from tests.populations.ratings.test_results import RESULTS

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
        # A few rows fill a chunk, so that most changes come to one that a snapshot has.
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
            # The newest pair first, whenever its counts were last set.
            own = [(key, expected[key]) for key in reversed(expected) if name in key[:2]]
            assert list(dict(table.of_entrant(name)).items()) == own
        for snapshot, then in snapshots:
            chosen = {key: counts for key, counts in then.items() if names >= {*key[:2]}}
            # In order of first setting, too.
            assert list(selected(snapshot, names).items()) == list(chosen.items())


def test_names_their_order_and_seats_tell_results_apart() -> None:
    table: ResultTable[int] = ResultTable()
    seats = [(0, 0), (0, 1), (1, 0), (16, 0), (0, 255), (255, 0), (255, 255)]
    keys = [(first, second, at) for first in range(5) for second in range(5) for at in seats]
    for number, key in enumerate(keys):
        table[key] = counts_of(number)
    assert [table[key].wins for key in keys] == list(range(len(keys)))
    assert len(table) == len(keys)


def test_hundreds_of_seats_are_told_apart() -> None:
    # In a free-for-all each agent is a side, with a seat of its own.
    table: ResultTable[int] = ResultTable()
    seats = [(0, 258), (1, 2), (256, 257), (0, 1), (495, 0), (239, 256), (0, 495)]
    keys = [(first, second, at) for first in range(3) for second in range(3) for at in seats]
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
    # Twelve rows, of which five are left, and two in a chunk.
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
