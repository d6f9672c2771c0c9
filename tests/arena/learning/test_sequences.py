from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.experience import Sequences
from arena.learning.sequences import cut_into_sequences, pack


def test_chains_are_cut_where_they_end_and_where_they_are_long() -> None:
    # 0 -> 2 -> 3 -> 6 and 1 -> 4; 5 is alone.
    successor = torch.tensor([2, 4, 3, 6, -1, -1, -1])
    assert cut_into_sequences(successor, max_length=None).tolist() == [
        [0, 2, 3, 6],
        [1, 4, -1, -1],
        [5, -1, -1, -1],
    ]
    pieces = cut_into_sequences(successor, max_length=3).tolist()
    assert pieces == [[0, 2, 3], [6, -1, -1], [1, 4, -1], [5, -1, -1]]
    assert cut_into_sequences(successor, max_length=1).flatten().tolist() == [0, 2, 3, 6, 1, 4, 5]


@pytest.mark.parametrize("max_length", [None, 3])
def test_no_decisions_are_no_sequences(max_length: int | None) -> None:
    assert len(cut_into_sequences(torch.zeros(0, dtype=torch.int64), max_length=max_length)) == 0


@settings(deadline=None, max_examples=50)
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=8),
    max_length=st.one_of(st.none(), st.integers(1, 10)),
    seed=st.integers(0, 100),
)
def test_every_decision_is_in_one_sequence_after_its_predecessor(
    lengths: list[int], max_length: int | None, seed: int
) -> None:
    rng = torch.Generator().manual_seed(seed)
    total = sum(lengths)
    # Chains share rows at random, each in the order of time.
    owner = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    owner = owner[torch.randperm(total, generator=rng)]
    successor = torch.full((total,), -1)
    for chain in range(len(lengths)):
        rows = (owner == chain).nonzero().squeeze(1)
        successor[rows[:-1]] = rows[1:]
    sequences = cut_into_sequences(successor, max_length=max_length)
    assert sorted(sequences[sequences >= 0].tolist()) == list(range(total))
    cut = max_length or max(lengths)
    assert len(sequences) == sum(-(-length // cut) for length in lengths)
    for sequence in sequences.tolist():
        rows_in = [row for row in sequence if row >= 0]
        assert sequence == rows_in + [-1] * (len(sequence) - len(rows_in))
        assert len(rows_in) <= cut
        assert [int(successor[row]) for row in rows_in[:-1]] == rows_in[1:]


def test_packed_rows_are_first_decisions_then_second_ones() -> None:
    rows = torch.tensor([[0, 3, -1], [1, 4, 5], [2, -1, -1]])
    sequences = Sequences(rows=rows, state=torch.arange(3.0)[:, None])
    packed = pack(sequences)
    assert packed.rows.tolist() == [1, 0, 2, 4, 3, 5]
    assert packed.batch_sizes.tolist() == [3, 2, 1]
    assert packed.state.flatten().tolist() == [1.0, 0.0, 2.0]
    some = pack(sequences, torch.tensor([2, 0]))
    assert (some.rows.tolist(), some.batch_sizes.tolist()) == ([0, 2, 3], [2, 1])
    assert some.state.flatten().tolist() == [0.0, 2.0]
