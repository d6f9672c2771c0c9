from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

from arena.learning import ppo_loss as losses
from arena.learning.advantages import clamped_log_ratio
from arena.learning.hyperparameters import PpoHyperparameters
from arena.learning.optimizer import NamedAdam
from arena.learning.update_metrics import UpdateMetrics
from arena.networks.distributions import make_distribution
from arena.spaces import ActionLayout
from tests.layouts import discrete, squashed


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
    ratio = clamped_log_ratio(torch.tensor([0.0, -1e38, -1.0]), torch.tensor([-1e38, 0.0, -1.5]))
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


def categorical_kl(old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """KL of choices by another implementation."""
    kinds = (torch.distributions.Categorical(logits=logits) for logits in (old, new))
    return torch.distributions.kl_divergence(*kinds)


def gaussian_kl(old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """KL of two numbers; a bijection of both leaves it as it is."""
    kinds = (
        torch.distributions.Independent(torch.distributions.Normal(p[:, :2], p[:, 2:].exp()), 1)
        for p in (old, new)
    )
    return torch.distributions.kl_divergence(*kinds)


@pytest.mark.parametrize(
    ("action", "kl"), [(discrete(4), categorical_kl), (squashed(-1, 1, size=2), gaussian_kl)]
)
def test_the_penalty_is_the_kl_from_the_old_policy_to_the_new_one(
    action: ActionLayout, kl: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
) -> None:
    generator = torch.Generator().manual_seed(0)
    old, new = (torch.randn(6, 4, generator=generator) for _ in range(2))
    new.requires_grad_()
    make, rows = make_distribution(action), torch.zeros(6)
    taken = make(old, None).sample(generator)
    batch = losses.Batch(
        normalized=rows, action_mask=None, action=taken, log_prob=make(old, None).log_prob(taken),
        advantage=rows, target=rows,
    )  # fmt: skip
    held, free = (
        losses.ppo_loss(
            make(new, None), rows, batch, magnet=None, old=make(old, None) if is_held else None,
            hyperparameters=PpoHyperparameters(kl_coef=3.0, entropy_coef=0.0),
        )
        for is_held in (True, False)
    )  # fmt: skip
    expected = kl(old, new).mean()
    assert expected.item() > 0.1
    assert kl(new, old).mean().item() != pytest.approx(expected.item(), rel=0.01)
    torch.testing.assert_close(held.total - free.total, 3.0 * expected)
    torch.testing.assert_close(held.diagnostics[-1], expected)
    assert len(held.diagnostics) == len(free.diagnostics) + 1
    (gradient,) = torch.autograd.grad(held.total, new, retain_graph=True)
    (by_hand,) = torch.autograd.grad(3.0 * kl(old, new).mean(), new)
    torch.testing.assert_close(gradient, by_hand)


def test_normalized_advantages_by_hand() -> None:
    # mean 2, deviation sqrt(2 / 3)
    found = losses.normalized_advantage(torch.tensor([1.0, 2.0, 3.0]))
    assert found.tolist() == pytest.approx([-math.sqrt(1.5), 0.0, math.sqrt(1.5)])
    assert losses.normalized_advantage(torch.tensor([5.0])).tolist() == [0.0]


NAMES = ("loss/total", "policy/kl")


def test_losses_are_means_over_all_epochs_and_diagnostics_over_the_last() -> None:
    metrics = UpdateMetrics(NAMES)
    metrics.begin_epoch()
    metrics.add([1.0, 10.0])
    metrics.add(None)
    metrics.add([2.0, 30.0])
    assert metrics.results() == {
        "loss/total": 1.5,
        "policy/kl": 20.0,
        "policy/kl_max": 20.0,
    }
    metrics.begin_epoch()
    metrics.add([6.0, 5.0])
    assert metrics.results() == {"loss/total": 3.0, "policy/kl": 5.0, "policy/kl_max": 5.0}
    assert metrics.skipped == 1


def test_what_was_not_measured_is_not_there() -> None:
    metrics = UpdateMetrics(NAMES)
    assert metrics.results() == {}
    metrics.begin_epoch()
    metrics.add([1.0, 10.0])
    metrics.begin_epoch()
    metrics.add(None)
    assert metrics.results() == {"loss/total": 1.0}


def test_ratios_are_the_extremes_of_all_epochs_and_skipped_steps_have_none() -> None:
    metrics = UpdateMetrics(("policy/kl", "policy/ratio_min", "policy/ratio_max"))
    metrics.begin_epoch()
    metrics.add([0.1, 0.5, 1.25])
    metrics.add([0.3, 0.75, 4.0])
    metrics.begin_epoch()
    metrics.add(None)
    metrics.add([0.7, 0.625, 2.0])
    assert metrics.results() == {
        "policy/kl": 0.7,
        "policy/kl_max": 0.7,
        "policy/ratio_min": 0.5,
        "policy/ratio_max": 4.0,
    }


def test_advantages_have_their_range_as_long_as_it_is_finite() -> None:
    metrics = UpdateMetrics(NAMES)
    metrics.add_rollout(torch.tensor([1.0, -3.0, 2.5]))
    assert metrics.results() == {"advantage/min": -3.0, "advantage/max": 2.5}


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_a_range_that_is_not_finite_is_left_out(broken: float) -> None:
    metrics = UpdateMetrics(NAMES)
    metrics.add_rollout(torch.tensor([1.0, broken, 2.5]))
    assert metrics.results() == {}


def make(weight: float) -> tuple[nn.Linear, NamedAdam]:
    layer = nn.Linear(1, 1, bias=False)
    layer.weight.data.fill_(weight)
    return layer, NamedAdam(layer, learning_rate=0.1, beta1=0.5)


def test_two_steps_by_hand() -> None:
    layer, adam = make(3.0)
    for gradient in (2.0, -4.0):
        norm = adam.compute_gradients(gradient * layer.weight.sum(), max_norm=100.0)
        assert norm.item() == abs(gradient)
        adam.step()
    state = {name: tensor.item() for name, tensor in adam.tensors().items()}
    # m: 1, then .5 - 2 = -1.5; v: .004, then .004 * .999 + .016; corrected by 1 - .5^2, 1 - .999^2.
    assert state["exp_avg.weight"] == pytest.approx(-1.5)
    assert state["exp_avg_sq.weight"] == pytest.approx(0.019996)
    assert state["step.weight"] == 2.0
    second = -1.5 / 0.75 / ((0.019996 / (1 - 0.999**2)) ** 0.5 + 1e-5)
    assert layer.weight.item() == pytest.approx(3.0 - 0.1 * 1.0 - 0.1 * second, rel=1e-5)


def test_long_gradients_are_scaled_down() -> None:
    layer, adam = make(0.0)
    assert adam.compute_gradients(8.0 * layer.weight.sum(), max_norm=0.5).item() == 8.0
    assert layer.weight.grad is not None
    assert layer.weight.grad.item() == pytest.approx(0.5, rel=1e-5)


def test_hyperparameters_can_change_and_state_be_forgotten() -> None:
    layer, adam = make(0.0)
    adam.apply(learning_rate=0.25, beta1=0.9, beta2=0.5, eps=1.0)
    assert adam.learning_rate == 0.25
    adam.compute_gradients(layer.weight.sum(), max_norm=100.0)
    adam.step()
    # Adam's first step is learning_rate |g| / (|g| + eps) = 0.25 * 1 / (1 + 1).
    assert layer.weight.item() == pytest.approx(-0.125, rel=1e-4)
    assert adam.tensors()["exp_avg.weight"].item() == pytest.approx(0.1)
    assert adam.tensors()["exp_avg_sq.weight"].item() == pytest.approx(0.5)
    adam.reset()
    assert not any(tensor.any() for tensor in adam.tensors().values())
