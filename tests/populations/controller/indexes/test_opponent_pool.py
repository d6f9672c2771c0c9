"""Possible opponents: columns that follow the tables, ratings that are inherited."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from populations.controller.indexes.opponent_pool import inherited


@given(
    st.lists(
        st.tuples(st.one_of(st.just(np.nan), st.floats(-1e3, 1e3)), st.integers(-1, 30)),
        max_size=30,
    )
)
def test_the_unrated_are_as_good_as_their_nearest_rated_ancestor(
    rows: list[tuple[float, int]],
) -> None:
    ratings = np.array([rating for rating, _ in rows], dtype=np.float64)
    # A parent precedes its children, whatever the positions are.
    parents = np.array(
        [min(parent, index - 1) for index, (_, parent) in enumerate(rows)], dtype=int
    )
    expected = []
    for index in range(len(rows)):
        at = index
        while np.isnan(ratings[at]) and parents[at] >= 0:
            at = parents[at]
        expected.append(ratings[at])
    before = ratings.copy()
    assert np.array_equal(inherited(ratings, parents), expected, equal_nan=True)
    assert np.array_equal(ratings, before, equal_nan=True)
