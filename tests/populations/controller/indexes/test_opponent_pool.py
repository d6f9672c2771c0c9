"""Possible opponents: columns that follow the tables, ratings that are inherited."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.types import PlayerId, PolicyId
from populations.controller.indexes.opponent_pool import OpponentPools, inherited
from tests.populations.controller.simulated import TAG
from tests.populations.controller.test_lineups import SHORT, played, rows


@pytest.mark.parametrize("document", [SHORT, {**TAG, "stop": {"agent_steps_per_policy": 3000}}])
@pytest.mark.slow
def test_candidates_follow_the_tables(document: dict[str, object]) -> None:
    world = played(document)
    tables = world.state.tables
    for population in world.state.config.populations:
        kept = world.state.opponent_pools.pool(population, tables)
        fresh = OpponentPools().pool(population, tables)
        assert rows(kept.ghosts.candidates) == rows(fresh.ghosts.candidates)
        nobody = PolicyId("nobody")
        assert rows(kept.latest(without=nobody)) == rows(fresh.latest(without=nobody))
        ghosts = [g for g in tables.ghosts.values() if g.population == population]
        assert [g.player for g in ghosts] == list(kept.ghosts.candidates.players)
        assert [g.role for g in ghosts] == [tables.policies[g.policy].role for g in ghosts]
        assert {c.player for c in map(kept.latest(without=nobody).__getitem__, range(3))} <= {
            PlayerId(policy) for policy in tables.policies
        }


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
    # A parent comes before its children, whatever the positions are.
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
