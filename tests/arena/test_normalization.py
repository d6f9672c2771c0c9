from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from arena.normalization import (
    MAX_COUNT,
    Exchange,
    RunningNormalizer,
    exchanged_moments,
    merged_moments,
)
from tests.arena.ranks import in_ranks


@given(
    sizes=st.lists(st.integers(0, 1500), min_size=1, max_size=5),
    offset=st.sampled_from([0.0, 1.0, -300.0]),
    scale=st.sampled_from([1e-3, 1.0, 50.0]),
    seed=st.integers(0, 2**32 - 1),
)
@pytest.mark.slow
def test_batches_add_up_to_what_numpy_says_of_all_rows(
    sizes: list[int], offset: float, scale: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    batches = [
        (offset + scale * rng.standard_normal((size, 3))).astype(np.float32) for size in sizes
    ]
    normalizer = RunningNormalizer(3)
    for batch in batches:
        assert normalizer.update(torch.from_numpy(batch))
    rows = np.concatenate(batches).astype(np.float64)
    assert normalizer.count.item() == len(rows)
    if len(rows):
        np.testing.assert_allclose(normalizer.mean, rows.mean(0), rtol=1e-5, atol=1e-5 * scale)
        # Values near the offset carry a rounding error of float32, which limits small variances.
        floor = (2**-23 * abs(offset)) ** 2
        np.testing.assert_allclose(normalizer.variance, rows.var(0), rtol=1e-4, atol=10 * floor)


def test_by_hand() -> None:
    normalizer = RunningNormalizer(1)
    normalizer.update(torch.tensor([[1.0], [3.0]]))  # mean 2, variance 1
    normalizer.update(torch.tensor([[8.0]]))  # 1, 3, 8: mean 4, variance (9 + 1 + 16) / 3
    assert normalizer.mean.item() == pytest.approx(4.0)
    assert normalizer.variance.item() == pytest.approx(26 / 3)
    assert normalizer.normalize(torch.tensor([[8.0]])).item() == pytest.approx(
        4.0 / (26 / 3) ** 0.5
    )


def test_an_outlier_in_the_first_row_costs_no_precision() -> None:
    rows = np.random.default_rng(0).standard_normal((5000, 1)).astype(np.float32)
    rows[0] = 1e4
    normalizer = RunningNormalizer(1)
    normalizer.update(torch.from_numpy(rows))
    np.testing.assert_allclose(normalizer.variance, rows.astype(np.float64).var(0), rtol=1e-5)


@pytest.mark.parametrize("constant", [0.0, 1.0, -1e6, 0.1])
@pytest.mark.parametrize("num_rows", [1, 2, 1025])
def test_constants_become_zero(constant: float, num_rows: int) -> None:
    normalizer = RunningNormalizer(2)
    rows = torch.full((num_rows, 2), constant)
    normalizer.update(rows)
    normalizer.update(rows)
    assert normalizer.normalize(rows).abs().max() < 1e-3


def test_fresh_is_the_identity_and_denormalize_is_the_inverse() -> None:
    normalizer = RunningNormalizer(1)
    values = torch.linspace(-5.0, 5.0, 11)
    torch.testing.assert_close(normalizer.normalize(values), values)
    normalizer.update(torch.tensor([[10.0], [14.0]]))
    torch.testing.assert_close(normalizer.denormalize(normalizer.normalize(values)), values)


def test_normalizing_moves_nothing() -> None:
    normalizer = RunningNormalizer(1)
    normalizer.update(torch.tensor([[1.0], [2.0]]))
    before = {name: tensor.clone() for name, tensor in normalizer.state_dict().items()}
    normalizer.normalize(torch.full((100, 1), 50.0))
    normalizer.denormalize(torch.full((100, 1), 50.0))
    after = normalizer.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), -float("inf"), 3e38])
def test_a_batch_that_is_not_finite_is_ignored(poison: float) -> None:
    normalizer = RunningNormalizer(1)
    normalizer.update(torch.tensor([[1.0], [3.0]]))
    assert not normalizer.update(torch.tensor([[0.0], [poison]]))
    assert (normalizer.mean.item(), normalizer.variance.item()) == (2.0, 1.0)
    assert normalizer.count.item() == 2.0


def test_the_count_stays_where_float32_stops_being_exact() -> None:
    normalizer = RunningNormalizer(1)
    normalizer.count.fill_(MAX_COUNT - 1.0)
    normalizer.update(torch.full((4096, 1), 2.0))
    assert normalizer.count.item() == MAX_COUNT
    # The statistics still adapt: 4096 of 2**24 + 4095 rows have the value 2.
    assert normalizer.mean.item() == pytest.approx(2.0 * 4096 / (2**24 + 4095), rel=1e-5)


def test_with_a_memory_old_batches_fade() -> None:
    normalizer = RunningNormalizer(1, memory=20.0)
    small = torch.tensor([[8.0], [12.0]])
    for _ in range(500):
        normalizer.update(small)
    # The count converges to twenty batches, however many there were.
    assert float(normalizer.count) == pytest.approx(2 / (1 - math.exp(-1 / 20)), rel=1e-3)
    assert float(normalizer.mean) == pytest.approx(10.0)
    for _ in range(20):
        normalizer.update(10.0 * small)
    assert float(normalizer.mean) == pytest.approx(100.0 - 90.0 / math.e, rel=1e-3)
    for _ in range(80):
        normalizer.update(10.0 * small)
    assert float(normalizer.mean) == pytest.approx(100.0, rel=0.01)
    assert float(normalizer.deviation) == pytest.approx(20.0, rel=0.1)


def test_a_small_batch_says_little_also_with_a_memory() -> None:
    generator = torch.Generator().manual_seed(1)
    normalizer = RunningNormalizer(1, memory=20.0)
    for _ in range(100):
        normalizer.update(torch.randn(1000, 1, generator=generator))
    normalizer.update(torch.full((1, 1), 50.0))
    assert abs(float(normalizer.mean)) < 0.05


def test_statistics_of_millions_of_rows_fade_too() -> None:
    """As in a checkpoint of a run that could not forget."""
    normalizer = RunningNormalizer(1, memory=20.0)
    normalizer.mean.fill_(8.0)
    normalizer.variance.fill_(25.0)
    normalizer.count.fill_(2.0**24)
    batch = 100.0 + 20.0 * torch.randn(4096, 1, generator=torch.Generator().manual_seed(1))
    for _ in range(200):
        normalizer.update(batch)
    assert float(normalizer.mean) == pytest.approx(100.0, rel=0.01)


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
