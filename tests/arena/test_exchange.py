from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from arena.normalization import (
    Exchange,
    RunningNormalizer,
    exchanged_moments,
    merged_moments,
)
from tests.arena.ranks import in_ranks


def moments_of(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return rows.double().mean(dim=0), rows.double().var(dim=0, correction=0)


def updating(one: RunningNormalizer, rows: torch.Tensor) -> Callable[[Exchange], bool]:
    return lambda exchange: one.update(rows, exchange=exchange)


def test_merged_moments_by_hand() -> None:
    # 1, 3 and 8: mean 4, variance (9 + 1 + 16) / 3
    mean, variance = merged_moments(
        torch.tensor([2.0, 1.0, 0.0]).double(),
        torch.tensor([[2.0], [8.0], [0.0]]).double(),
        torch.tensor([[1.0], [0.0], [0.0]]).double(),
    )
    assert mean.item() == pytest.approx(4.0)
    assert variance.item() == pytest.approx(26 / 3)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.integers(0, 2**31))
def test_moments_are_those_of_all_rows_together(counts: list[int], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    parts = [torch.randn(n, 3, generator=generator) + n for n in counts]

    def task(part: torch.Tensor) -> Callable[[Exchange], tuple[int, torch.Tensor, torch.Tensor]]:
        return lambda exchange: exchanged_moments(
            exchange, len(part), lambda: moments_of(part), size=3
        )

    found = in_ranks([task(part) for part in parts])
    assert all(number == sum(counts) for number, _, _ in found)
    if not sum(counts):
        assert found[0][1].tolist() == found[0][2].tolist() == [0.0] * 3
        return
    mean, variance = moments_of(torch.cat(parts))
    for _, one, other in found:
        torch.testing.assert_close(one, mean)
        torch.testing.assert_close(other, variance)


def test_rows_that_are_not_finite_in_one_rank_are_ignored_in_all() -> None:
    ranks = [RunningNormalizer(1), RunningNormalizer(1)]
    rows = [torch.tensor([[1.0]]), torch.tensor([[float("inf")]])]
    found = in_ranks([updating(one, part) for one, part in zip(ranks, rows, strict=True)])
    assert found == [False, False]
    assert [one.count.item() for one in ranks] == [0.0, 0.0]
