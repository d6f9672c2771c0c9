from __future__ import annotations

import math

import pytest
import torch

from arena.learning import ppo_loss as losses


def test_clipped_surrogate_by_hand() -> None:
    # min(r A, clip(r, .8, 1.2) A): min(1.5, 1.2), min(-1.5, -1.2), min(.5, .8), min(-.5, -.8)
    ratio = torch.tensor([1.5, 1.5, 0.5, 0.5])
    advantage = torch.tensor([1.0, -1.0, 1.0, -1.0])
    loss = losses.clipped_surrogate(ratio, advantage, clip_coef=0.2)
    assert loss.item() == pytest.approx(-(1.2 - 1.5 + 0.5 - 0.8) / 4)


def test_clipped_surrogate_has_no_gradient_where_the_ratio_gained_enough() -> None:
    ratio = torch.tensor([1.5, 1.5, 0.5, 0.5], requires_grad=True)
    advantage = torch.tensor([1.0, -1.0, 1.0, -1.0])
    loss = losses.clipped_surrogate(ratio, advantage, clip_coef=0.2)
    loss.backward()  # type: ignore[no-untyped-call]
    assert ratio.grad is not None
    assert ratio.grad.tolist() == [0.0, 0.25, -0.25, 0.0]


def test_value_loss_by_hand() -> None:
    loss = losses.squared_value_loss(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 5.0]))
    assert loss.item() == pytest.approx((4 + 9) / 2)


def test_approximate_kl_by_hand() -> None:
    # (r - 1) - log r at r = 2 and r = 1/2: 1 - ln 2 and -1/2 + ln 2; mean 1/4.
    kl = losses.approximate_kl(torch.tensor([math.log(2.0), -math.log(2.0)]))
    assert kl.item() == pytest.approx(0.25)
    assert losses.approximate_kl(torch.zeros(3)).item() == 0.0


def test_approximate_kl_is_unbiased() -> None:
    old = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    new = torch.tensor([0.4, 0.4, 0.2], dtype=torch.float64)
    exact = (old * (old / new).log()).sum()
    ratio = (new / old).log()
    estimate = sum(float(old[k]) * losses.approximate_kl(ratio[k : k + 1]) for k in range(3))
    torch.testing.assert_close(torch.as_tensor(estimate), exact)


def test_clip_fraction_by_hand() -> None:
    ratio = torch.tensor([0.5, 0.9, 1.0, 1.1, 1.3])
    assert losses.clip_fraction(ratio, clip_coef=0.2).item() == pytest.approx(2 / 5)


def test_log_ratio_cannot_overflow() -> None:
    ratio = losses.clamped_log_ratio(
        torch.tensor([0.0, -1e38, -1.0]), torch.tensor([-1e38, 0.0, -1.5])
    )
    assert ratio.tolist() == [20.0, -20.0, 0.5]
    assert ratio.exp().square().isfinite().all()


def test_explained_variance_by_hand() -> None:
    target = torch.tensor([0.0, 2.0, 4.0])  # variance 8/3
    assert losses.explained_variance(target, target) == 1.0
    assert losses.explained_variance(torch.full((3,), 7.0), target) == pytest.approx(0.0)
    # Errors 0, 1, 0: variance 2/9.
    value = torch.tensor([0.0, 1.0, 4.0])
    assert losses.explained_variance(value, target) == pytest.approx(1 - (2 / 9) / (8 / 3))


@pytest.mark.parametrize("target", [[], [1.0], [3.0, 3.0], [math.nan, 1.0], [math.inf, 1.0]])
def test_explained_variance_is_not_there_where_it_is_undefined(target: list[float]) -> None:
    targets = torch.tensor(target)
    assert losses.explained_variance(torch.zeros_like(targets), targets) is None
