from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.types import PolicyId
from populations.candidates import Candidate, CandidateColumns
from tests.populations.columns import make_candidates
from tests.populations.matchmaking.toy_league import ghost

ROLES = ("main", "main_exploiter", "league_exploiter")


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 5), st.sampled_from(ROLES))))
def test_columns_are_their_rows(rows: list[tuple[int, int, str]]) -> None:
    expected = [ghost(steps, policy=policy, role=role) for steps, policy, role in rows]
    found = make_candidates(expected)
    assert len(found) == len(expected)
    assert [found[index] for index in range(len(found))] == expected
    for role in (*ROLES, "nobody's"):
        assert found.of_role(role).tolist() == [row.role == role for row in expected]
    for number in range(7):
        policy = PolicyId(f"player/p{number:03d}")
        assert found.of_policy(policy).tolist() == [row.policy == policy for row in expected]


def test_they_grow_and_change_and_a_view_cannot_be_written() -> None:
    columns = CandidateColumns()
    rows = [ghost(number) for number in range(200)]
    for row in rows:
        columns.append(row)
    columns.set(150, ghost(150, quality=-2.0))
    found = columns.candidates
    assert [row.quality for row in map(found.__getitem__, range(200))] == [0.0] * 150 + [-2.0] + [
        0.0
    ] * 49
    with pytest.raises(ValueError, match="read-only"):
        found.qualities[0] = 1.0
    taken = found.take(np.array([150, 3]))
    assert [taken[0], taken[1]] == [ghost(150, quality=-2.0), rows[3]]
    assert taken.codes is found.codes


def test_equal_weights_share_a_code() -> None:
    twins = [
        Candidate(player=row.player, policy=row.policy, entrant=ghost(1).entrant, agent_steps=0)
        for row in (ghost(1), ghost(2))
    ]
    assert make_candidates([*twins, ghost(3)]).entrant_codes.tolist() == [0, 0, 1]
