from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.metrics.rotation import WHOLE, Rotation


@given(sizes=st.lists(st.integers(0, 50), max_size=8), keep=st.integers(0, 200))
def test_the_longest_end_within_the_bound_stays(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], keep: int
) -> None:
    directory = tmp_path_factory.mktemp("sink")
    paths = [directory / str(number) for number in range(len(sizes))]
    for path, size in zip(paths, sizes, strict=True):
        path.write_bytes(b"x" * size)
    Rotation(keep_bytes=keep).remove_oldest(paths)
    ends = [start for start in range(len(sizes) + 1) if sum(sizes[start:]) <= keep]
    assert [path for path in paths if path.exists()] == paths[min(ends) :]


def test_without_bounds_nothing_is_due_or_removed(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    WHOLE.remove_oldest([tmp_path / "a"])
    assert (tmp_path / "a").exists()
    assert not WHOLE.is_due(10**18)
    assert [Rotation(file_bytes=5).is_due(size) for size in (4, 5)] == [False, True]
