from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from arena.networks.distributions import Distribution, log_tanh_slope, make_distribution
from arena.spaces import ActionLayout

LOW, HIGH = -1.0, 3.0


def one_number(
    low: object, high: object, *, mean: float, std: float, clipped: bool = False
) -> tuple[ActionLayout, Distribution]:
    space = {"kind": "Box", "shape": [1], "dtype": "float32", "low": low, "high": high}
    action = ActionLayout.from_json(space, continuous="clipped" if clipped else "squashed")
    return action, make_distribution(action)(torch.tensor([[mean, math.log(std)]]), None)


def test_the_slope_of_tanh_has_no_cancellation() -> None:
    u = torch.tensor([0.0, 0.5, -2.0, 30.0, -300.0])
    exact = [math.log(1.0 - math.tanh(value) ** 2) for value in u[:3].tolist()]
    # Far out, 1 - tanh(u)^2 is 4 exp(-2 |u|), which is 0 in any float.
    far = [math.log(4.0) - 60.0, math.log(4.0) - 600.0]
    torch.testing.assert_close(log_tanh_slope(u), torch.tensor(exact + far), rtol=1e-6, atol=1e-6)


def test_log_prob_by_hand() -> None:
    # a = 1 + 2 tanh(u). At u = 0 the slope is 2, so p(a) = N(0; 0, 1) / 2.
    _, found = one_number(LOW, HIGH, mean=0.0, std=1.0)
    expected = -0.5 * math.log(2.0 * math.pi) - math.log(2.0)
    assert found.log_prob(torch.zeros(1, 1)).item() == pytest.approx(expected, abs=1e-6)


def test_log_prob_agrees_with_torch_distributions() -> None:
    space = {"kind": "Box", "shape": [2], "dtype": "float32", "low": [-1, 0], "high": [3, 0.5]}
    action = ActionLayout.from_json(space, continuous="squashed")
    generator = torch.Generator().manual_seed(0)
    mean, log_std = torch.randn(2, 40, 2, generator=generator)
    found = make_distribution(action)(torch.cat([mean, log_std], dim=1), None)
    u = found.sample(generator)
    base = torch.distributions.Normal(mean.double(), log_std.double().exp())
    low, high = torch.tensor([[-1.0, 0.0], [3.0, 0.5]]).double()
    oracle = torch.distributions.TransformedDistribution(
        base,
        [
            torch.distributions.TanhTransform(cache_size=1),
            torch.distributions.AffineTransform((low + high) / 2, (high - low) / 2),
        ],
    )
    near = u.abs().amax(dim=1) < 4.0  # the oracle inverts tanh
    given = (low + high) / 2 + (high - low) / 2 * torch.tanh(u.double())
    expected = oracle.log_prob(given).sum(dim=1)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(
        found.log_prob(u).double()[near], expected[near], rtol=1e-3, atol=1e-3
    )
    assert near.sum() > 20


@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (1.0, 0.3), (-2.0, 2.0)])
def test_density_integrates_to_one_and_gives_the_entropy(mean: float, std: float) -> None:
    action, found = one_number(LOW, HIGH, mean=mean, std=std)
    u = torch.linspace(mean - 12 * std, mean + 12 * std, 20_001, dtype=torch.float64)
    many = make_distribution(action)(
        torch.tensor([[mean, math.log(std)]]).double().expand(len(u), -1), None
    )
    log_density = many.log_prob(u[:, None]).numpy()
    # In terms of u: da = half (1 - tanh(u)^2) du.
    slope = np.exp(np.log(2.0) + log_tanh_slope(u).numpy())
    mass = np.exp(log_density) * slope
    assert integrate.simpson(mass, x=u.numpy()) == pytest.approx(1.0, abs=1e-5)
    entropy = -integrate.simpson(mass * log_density, x=u.numpy())
    assert found.entropy().item() == pytest.approx(entropy, abs=2e-3)


def test_entropy_has_the_gradient_of_its_integral() -> None:
    action = one_number(LOW, HIGH, mean=0.0, std=1.0)[0]
    make, step = make_distribution(action).double(), 1e-4
    point = torch.tensor([[0.7, -0.4]]).double().requires_grad_()
    make(point, None).entropy().sum().backward()  # type: ignore[no-untyped-call]
    assert point.grad is not None
    for at in range(2):
        shift = torch.zeros(1, 2).double()
        shift[0, at] = step
        rise = (
            make(point.detach() + shift, None).entropy()
            - make(point.detach() - shift, None).entropy()
        )
        assert point.grad[0, at].item() == pytest.approx(rise.item() / (2 * step), abs=1e-3)


def test_what_is_wide_after_the_squash_is_not_certain() -> None:
    # The more the Gaussian spreads, the more of it is pressed against the bounds.
    entropies = [
        one_number(-1.0, 1.0, mean=0.0, std=std)[1].entropy().item() for std in (0.1, 0.9, 3.0)
    ]
    assert entropies[1] > max(entropies[0], entropies[2])
    assert entropies[1] < math.log(2.0)  # that of the uniform distribution


def test_clipped_and_unbounded_numbers_are_plain_gaussians() -> None:
    for low, high, clipped in ((LOW, HIGH, True), ("-inf", "inf", False), (0.0, "inf", False)):
        _, found = one_number(low, high, mean=0.5, std=2.0, clipped=clipped)
        oracle = stats.norm(0.5, 2.0)
        assert found.log_prob(torch.tensor([[4.0]])).item() == pytest.approx(
            oracle.logpdf(4.0), abs=1e-5
        )
        assert found.entropy().item() == pytest.approx(oracle.entropy(), abs=1e-5)


def test_bounds_of_both_kinds_in_one_space() -> None:
    space = {"kind": "Box", "shape": [2], "dtype": "float32", "low": [-1, 0], "high": [3, "inf"]}
    action = ActionLayout.from_json(space, continuous="squashed")
    values = torch.tensor([[0.3, -0.2, 0.1, 0.4]])
    found = make_distribution(action)(values, None)
    first = one_number(-1, 3, mean=0.3, std=math.exp(0.1))[1]
    second = one_number(0, "inf", mean=-0.2, std=math.exp(0.4))[1]
    row = torch.tensor([[1.2, -0.7]])
    expected = first.log_prob(row[:, :1]) + second.log_prob(row[:, 1:])
    torch.testing.assert_close(found.log_prob(row), expected)
    torch.testing.assert_close(found.entropy(), first.entropy() + second.entropy())


def test_a_range_of_nothing_adds_nothing() -> None:
    _, found = one_number(1.0, 1.0, mean=0.0, std=1.0)
    assert math.isfinite(found.log_prob(torch.zeros(1, 1)).item())


def test_divergence_by_hand_and_by_integration() -> None:
    _, p = one_number(LOW, HIGH, mean=0.0, std=1.0)
    _, q = one_number(LOW, HIGH, mean=1.0, std=2.0)
    # KL = ln 2 + (1 + 1) / (2 * 4) - 1/2, and that of the squashed ones is the same.
    expected = math.log(2.0) + 0.25 - 0.5
    assert p.divergence(q).item() == pytest.approx(expected, abs=1e-6)
    u = torch.linspace(-10, 10, 4001)
    row = u[:, None]
    action = one_number(LOW, HIGH, mean=0.0, std=1.0)[0]
    many = [
        make_distribution(action)(torch.tensor([[m, math.log(s)]]).expand(len(u), -1), None)
        for m, s in ((0.0, 1.0), (1.0, 2.0))
    ]
    difference = (many[0].log_prob(row) - many[1].log_prob(row)).numpy()
    integral = integrate.simpson(stats.norm.pdf(u.numpy()) * difference, x=u.numpy())
    assert integral == pytest.approx(expected, abs=1e-4)


def test_samples_are_of_the_gaussian_and_greedy_is_its_mean() -> None:
    action, found = one_number(LOW, HIGH, mean=0.5, std=2.0)
    many = make_distribution(action)(torch.tensor([[0.5, math.log(2.0)]]).expand(20_000, -1), None)
    rows = many.sample(torch.Generator().manual_seed(0))
    assert rows.shape == (20_000, 1)
    assert stats.kstest(rows[:, 0].numpy(), stats.norm(0.5, 2.0).cdf).pvalue > 0.001
    assert found.greedy().tolist() == [[0.5]]


def test_absurd_parameters_give_finite_numbers() -> None:
    action = one_number(LOW, HIGH, mean=0.0, std=1.0)[0]
    for mean, log_std in ((1e6, 1e6), (-1e6, -1e6), (0.0, -1e30)):
        found = make_distribution(action)(torch.tensor([[mean, log_std]]), None)
        rows = found.sample(torch.Generator().manual_seed(0))
        assert found.log_prob(rows).isfinite().all()
        assert found.entropy().isfinite().all()
