"""Sequences of a recurrent policy's decisions, and how they are unrolled together.

Truncated backpropagation through time: a sequence begins with the state that was stored when it was
played, and gradients end there (Williams and Peng, 1990). Shapes: D decisions of a rollout, Q
sequences of at most L decisions, H numbers of a recurrent state, R decisions of some sequences.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from arena.experience import Sequences

NONE = -1
"""Entry of a table of rows that stands for no row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """Whole sequences as rows that a core takes without padding: all first decisions, the longest
    sequence first, then the second ones of those that have one, and so on.

    Attributes:
        rows: Rows of the rollout. int64 [R].
        batch_sizes: Number of sequences that have a first, second, ... decision. int64 [L], CPU.
        state: Recurrent state before the first decisions. float32 [Q, H].
    """

    rows: torch.Tensor
    batch_sizes: torch.Tensor
    state: torch.Tensor


def cut_into_sequences(successor: torch.Tensor, *, max_length: int | None) -> torch.Tensor:
    """Cut each agent's decisions, in order, into sequences of at most ``max_length``.

    Args:
        successor: Row of the same agent's next decision in the same episode; -1: none, or it is not
            among the rows. int64 [D].
        max_length: Largest number of decisions; None: no limit.

    Returns:
        Rows of each sequence, -1 after its last one. int64 [Q, L].
    """
    is_first = torch.ones_like(successor, dtype=torch.bool)
    # A chain begins at a row that is no successor of another row.
    is_first[successor[successor >= 0]] = False
    # Index -1, after a chain's last decision, reads the last entry, which is -1.
    after = torch.cat([successor, successor.new_full((1,), NONE)])
    columns = [is_first.nonzero().squeeze(1)]
    # Column k + 1 holds the successors of column k.
    while bool((following := after[columns[-1]]).ge(0).any()):
        columns.append(following)
    if max_length is not None:
        # The number of columns is padded to a multiple, so that one reshape cuts all chains.
        missing = -len(columns) % max_length
        columns += [torch.full_like(columns[0], NONE)] * missing
    table = torch.stack(columns, dim=1).reshape(-1, max_length or len(columns))
    # Chains shorter than the table leave empty pieces, which are dropped.
    return table[table[:, 0] >= 0]


def pack(sequences: Sequences, index: torch.Tensor | None = None) -> Packed:
    """Pack some sequences (int64 [Q'], at least one), or all of them, for one unroll."""
    rows, state = sequences.rows, sequences.state
    if index is not None:
        rows, state = rows.index_select(0, index), state.index_select(0, index)
    lengths = (rows >= 0).sum(dim=1)
    # torch requires the longest sequence first; a stable sort packs equal inputs equally.
    order = lengths.argsort(descending=True, stable=True)
    # [Q, L] -> [L, Q]
    by_place = rows.index_select(0, order).T
    there = by_place >= 0
    # torch requires the batch sizes on the CPU.
    batch_sizes = there.sum(dim=1).cpu()
    return Packed(
        rows=by_place[there],
        batch_sizes=batch_sizes[batch_sizes > 0],
        state=state.index_select(0, order),
    )
