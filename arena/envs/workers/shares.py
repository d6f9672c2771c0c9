"""Shares of a batch: the environments of each worker, and the rows that they fill in shared memory.

Shapes: B environments, S agents of a population that decide at once, K numbers of an action.

Tests: `tests/arena/envs/workers/test_worker_envs.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from arena.envs.one_by_one.steppers import EnvsRequest, make_rows
from arena.envs.pettingzoo.buffers import Buffers
from arena.envs.workers.shared_arrays import SharedArrays


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRows:
    """All data of a batch that processes share.

    Attributes:
        buffers: Buffers that the environments fill.
        actions: Actions by population. int64 [B, S] or float32 [B, S, K].
        num_steps: Steps that environments have begun, counted at the first environment of each
            share. int64 [B].
    """

    buffers: Buffers
    actions: Mapping[str, npt.NDArray[Any]]
    num_steps: npt.NDArray[np.int64]


def shared_rows(request: EnvsRequest, arrays: SharedArrays, *, first: int = 0) -> SharedRows:
    """Map the rows of some environments in shared memory, or measure their size.

    Args:
        request: The environments.
        arrays: Arrays, none of them allocated yet.
        first: Index of the first environment in the batch.
    """
    buffers = make_rows(request, allocate=arrays.allocate, first=first)
    actions = {}
    for name, population in buffers.populations.items():
        layout = population.actions
        # [B, S] + () or (K,)
        shape = (*population.agent_index.shape, *layout.row_shape)
        actions[name] = arrays.allocate(shape, layout.row_dtype)
    num_steps = arrays.allocate((request.num_envs,), np.int64)
    return SharedRows(buffers=buffers, actions=actions, num_steps=num_steps)


def shares_of(num_envs: int, *, num_workers: int) -> list[range]:
    """Divide environments among workers: contiguous, in order, as equal as possible."""
    ends = [num_envs * worker // num_workers for worker in range(num_workers + 1)]
    return [range(first, end) for first, end in pairwise(ends)]
