"""Arrays in shared memory: the same places for all who ask in the same order."""

from __future__ import annotations

import mmap

import numpy as np

from arena.envs.workers.shared_arrays import ALIGNMENT, SharedArrays, anonymous_memory
from arena.envs.workers.shares import shares_of

SHAPES: tuple[tuple[tuple[int, ...], type], ...] = (
    ((3,), np.bool_),
    ((2, 5), np.float32),
    ((7, 0), np.int64),
    ((1, 2, 3), np.int64),
)


def test_a_share_sees_its_rows_of_the_same_arrays() -> None:
    def allocated(arrays: SharedArrays, num_envs: int) -> list[np.ndarray]:
        return [arrays.allocate((num_envs, *shape), dtype) for shape, dtype in SHAPES]

    measured = SharedArrays(None, num_envs=7)
    allocated(measured, 7)
    assert measured.num_bytes % ALIGNMENT == 0
    with anonymous_memory(measured.num_bytes) as fd:
        memories = [mmap.mmap(fd, 0) for _ in range(3)]
    whole = allocated(SharedArrays(memories[0], num_envs=7), 7)
    shares = [(0, 3), (3, 4)]
    parts = [
        allocated(SharedArrays(memory, num_envs=7, first=first), number)
        for memory, (first, number) in zip(memories[1:], shares, strict=True)
    ]
    assert not any(array.any() for array in whole)
    generator = np.random.default_rng(1)
    for at, array in enumerate(whole):
        array[:] = generator.integers(0, 100, array.shape)
        assert np.array_equal(np.concatenate([part[at] for part in parts]), array)
    # In another order than they were allocated: none overlaps with another.
    for at in (3, 0, 1):
        before = [array.copy() for array in whole]
        parts[1][at][:] = 1
        for other, array in enumerate(whole):
            expected = before[other]
            if other == at:
                expected[3:] = 1
            assert np.array_equal(array, expected)


def test_environments_are_divided_in_order_and_as_equally_as_possible() -> None:
    assert shares_of(8, num_workers=3) == [range(2), range(2, 5), range(5, 8)]
    assert shares_of(4, num_workers=4) == [range(b, b + 1) for b in range(4)]
