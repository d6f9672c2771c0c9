from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from arena.networks import distributions
from arena.networks.distributions import Distribution, log_tanh_slope, make_distribution
from arena.spaces import ActionLayout
from tests.layouts import branching, discrete, squashed


def box(low: object, high: object, *, size: int, continuous: Any = "squashed") -> dict[str, object]:
    return {"kind": "Box", "shape": [size], "dtype": "float32", "low": low, "high": high}


JOINT = ActionLayout.from_json(
    {
        "kind": "Dict",
        "spaces": {
            "aim": box(-1.0, 3.0, size=2),
            "fire": {"kind": "MultiBinary", "shape": [2]},
            "gear": {"kind": "Discrete", "n": 4, "start": 0},
        },
    },
    continuous="squashed",
)


def parameters(action: ActionLayout, num_rows: int, *, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    number = make_distribution(action).num_parameters
    return torch.randn(num_rows, number, generator=generator)


def make(
    action: ActionLayout, values: torch.Tensor, mask: torch.Tensor | None = None
) -> Distribution:
    return make_distribution(action)(values, mask)


def categorical(logits: torch.Tensor) -> torch.distributions.Categorical:
    return torch.distributions.Categorical(logits=logits)


def test_a_single_choice_is_bit_for_bit_what_heads_computes() -> None:
    logits = 3.0 * parameters(discrete(5), 200)
    mask = torch.rand(200, 5, generator=torch.Generator().manual_seed(1)) < 0.6
    mask[:, 2] = True
    for legal in (mask, None):
        found = make(discrete(5), logits, legal)
        log_probs = distributions.masked_log_probs(logits, legal)
        drawn = distributions.sample(
            distributions.mask_logits(logits, legal), generator=torch.Generator().manual_seed(3)
        )
        assert torch.equal(found.sample(torch.Generator().manual_seed(3)), drawn)
        assert torch.equal(found.greedy(), distributions.greedy(logits, legal))
        assert torch.equal(found.log_prob(drawn), distributions.action_log_probs(log_probs, drawn))
        assert torch.equal(found.entropy(), distributions.entropy(log_probs))
        assert found.greedy().dtype == torch.int64


def test_divergence_of_choices_by_hand() -> None:
    # p = (1/4, 3/4), q = (1/2, 1/2): KL = 1/4 ln 1/2 + 3/4 ln 3/2
    mask = torch.tensor([[True, False, True]])
    p = make(discrete(3), torch.tensor([[0.0, 9.0, math.log(3.0)]]), mask)
    q = make(discrete(3), torch.tensor([[1.0, -9.0, 1.0]]), mask)
    expected = 0.25 * math.log(0.5) + 0.75 * math.log(1.5)
    assert p.divergence(q).item() == pytest.approx(expected, abs=1e-6)
    assert p.divergence(p).item() == 0.0


def test_num_parameters_are_logits_then_means_then_deviations() -> None:
    assert make_distribution(discrete(7)).num_parameters == 7
    assert make_distribution(branching(3, 1, 2)).num_parameters == 6
    assert make_distribution(squashed(0.0, 1.0, size=3)).num_parameters == 6
    assert JOINT.branches == (2, 2, 4)
    assert make_distribution(JOINT).num_parameters == 8 + 4


@given(
    branches=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    seed=st.integers(0, 1000),
    is_masked=st.booleans(),
)
@settings(max_examples=30)
def test_masked_branches_by_enumeration(branches: list[int], seed: int, is_masked: bool) -> None:
    action = branching(*branches)
    generator = torch.Generator().manual_seed(seed)
    logits = 2.0 * torch.randn(1, sum(branches), generator=generator)
    other = 2.0 * torch.randn(1, sum(branches), generator=generator)
    mask = torch.rand(1, sum(branches), generator=generator) < 0.5
    firsts = [sum(branches[:at]) for at in range(len(branches))]
    mask[0, firsts] = True
    legal = mask if is_masked else None
    found, against = make(action, logits, legal), make(action, other, legal)
    rows: list[list[float]] = []
    log_p: list[float] = []
    log_q: list[float] = []
    for choices in itertools.product(*map(range, branches)):
        places = [first + choice for first, choice in zip(firsts, choices, strict=True)]
        if is_masked and not mask[0, places].all():
            continue
        rows.append([float(choice) for choice in choices])
        for total, each in ((log_p, logits), (log_q, other)):
            probability = 0.0
            for at, (first, place) in enumerate(zip(firsts, places, strict=True)):
                part = slice(first, first + branches[at])
                allowed = mask[0, part] if is_masked else torch.ones(branches[at]).bool()
                weights = each[0, part].double()[allowed]
                probability += float(each[0, place].double() - weights.logsumexp(0))
            total.append(probability)
    number = len(rows)
    repeated = make(
        action, logits.expand(number, -1), None if legal is None else mask.expand(number, -1)
    )
    p, q = torch.tensor(log_p).double(), torch.tensor(log_q).double()
    torch.testing.assert_close(repeated.log_prob(torch.tensor(rows)).double(), p, rtol=0, atol=1e-5)
    assert p.exp().sum().item() == pytest.approx(1.0)
    assert found.entropy().item() == pytest.approx(-float((p.exp() * p).sum()), abs=1e-5)
    divergence = float((p.exp() * (p - q)).sum())
    assert found.divergence(against).item() == pytest.approx(divergence, abs=1e-5)
    assert found.greedy()[0].tolist() == rows[int(p.argmax())]
    assert found.sample(generator)[0].tolist() in rows


@pytest.mark.parametrize("action", [branching(3, 2), branching(2, 2)])
def test_samples_of_branches_have_the_joint_frequencies(action: ActionLayout) -> None:
    logits = parameters(action, 1)
    mask = torch.ones(1, action.num_logits, dtype=torch.bool)
    mask[0, 1] = False
    number = 40_000
    many = make(action, logits.expand(number, -1), mask.expand(number, -1))
    rows = many.sample(torch.Generator().manual_seed(0))
    assert rows.dtype == torch.float32
    assert rows.shape == (number, 2)
    for choices in itertools.product(*map(range, action.branches)):
        row = torch.tensor([choices]).float()
        expected = float(make(action, logits, mask).log_prob(row).exp())
        share = float((rows == row).all(dim=1).float().mean())
        assert share == pytest.approx(expected, abs=4 * 0.5 / math.sqrt(number))


def test_gradients_stay_finite_and_off_what_is_illegal() -> None:
    action = branching(3, 1, 2)
    leaf = (3.0 * parameters(action, 8)).requires_grad_()
    mask = torch.ones(8, 6, dtype=torch.bool)
    mask[:, [0, 5]] = False
    found = make(action, leaf, mask)
    rows = found.sample(torch.Generator().manual_seed(0))
    (found.log_prob(rows) + found.entropy()).sum().backward()  # type: ignore[no-untyped-call]
    assert leaf.grad is not None
    assert leaf.grad.isfinite().all()
    assert not leaf.grad[:, [0, 5]].any()
    # A branch with a single choice has no gradient.
    assert not leaf.grad[:, 3].any()
    assert leaf.grad[:, [1, 2]].any()


def test_a_mixed_action_is_the_sum_of_its_parts() -> None:
    values = parameters(JOINT, 50)
    mask = torch.ones(50, 8, dtype=torch.bool)
    mask[:25, 5] = False
    found = make(JOINT, values, mask)
    rows = found.sample(torch.Generator().manual_seed(0))
    assert rows.shape == (50, 5)
    masked = values[:, :8].masked_fill(~mask, -1e30)
    parts = [categorical(masked[:, 0:2]), categorical(masked[:, 2:4]), categorical(masked[:, 4:8])]
    numbers = make(squashed(-1.0, 3.0, size=2), values[:, 8:])
    expected = numbers.log_prob(rows[:, 3:])
    entropy = numbers.entropy()
    for at, part in enumerate(parts):
        expected = expected + part.log_prob(rows[:, at])  # type: ignore[no-untyped-call]
        entropy = entropy + part.entropy()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(found.log_prob(rows), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.entropy(), entropy, rtol=1e-5, atol=1e-5)
    greedy = found.greedy()
    assert greedy[:, 2].tolist() == masked[:, 4:8].argmax(dim=1).tolist()
    assert torch.equal(greedy[:, 3:], values[:, 8:10])


def test_sampling_depends_on_its_generator_alone() -> None:
    found = make(JOINT, parameters(JOINT, 20))
    state = torch.get_rng_state()
    first = found.sample(torch.Generator().manual_seed(7))
    assert torch.equal(first, found.sample(torch.Generator().manual_seed(7)))
    assert not torch.equal(first, found.sample(torch.Generator().manual_seed(8)))
    assert torch.equal(state, torch.get_rng_state())


def test_log_probs_and_entropy_by_hand() -> None:
    # Legal weights 1 : 3, so probabilities 1/4 and 3/4; H = ln 4 - 3/4 ln 3.
    logits = torch.tensor([[0.0, 50.0, math.log(3.0)]])
    log_probs = distributions.masked_log_probs(logits, torch.tensor([[True, False, True]]))
    torch.testing.assert_close(log_probs[0, [0, 2]], torch.tensor([math.log(0.25), math.log(0.75)]))
    assert log_probs[0, 1] == torch.finfo(torch.float32).min
    torch.testing.assert_close(
        distributions.entropy(log_probs), torch.tensor([math.log(4.0) - 0.75 * math.log(3.0)])
    )
    torch.testing.assert_close(
        distributions.action_log_probs(log_probs, torch.tensor([2])), torch.tensor([math.log(0.75)])
    )


def test_single_legal_action_has_entropy_zero_and_probability_one() -> None:
    log_probs = distributions.masked_log_probs(
        torch.tensor([[3.0, -80.0, 9.0]]), torch.tensor([[False, True, False]])
    )
    assert distributions.entropy(log_probs).item() == 0.0
    assert log_probs[0, 1].item() == 0.0


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4])
def test_agrees_with_torch_distributions(scale: float) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = scale * torch.randn(50, 6, generator=generator)
    mask = torch.rand(50, 6, generator=generator) < 0.5
    mask[:, 3] = True
    log_probs = distributions.masked_log_probs(logits, mask)
    oracle = torch.distributions.Categorical(logits=logits.masked_fill(~mask, -1e30))
    torch.testing.assert_close(log_probs[mask], oracle.logits[mask], rtol=1e-5, atol=1e-5)
    expected = oracle.entropy()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(distributions.entropy(log_probs), expected, rtol=1e-5, atol=1e-5)


@given(
    logits=st.lists(st.floats(-1e6, 1e6, width=32), min_size=4, max_size=4),
    mask=st.lists(st.booleans(), min_size=4, max_size=4),
)
def test_gradients_are_finite_and_zero_for_illegal_actions(
    logits: list[float], mask: list[bool]
) -> None:
    mask[0] = True
    leaf = torch.tensor([logits], requires_grad=True)
    log_probs = distributions.masked_log_probs(leaf, torch.tensor([mask]))
    (distributions.entropy(log_probs) + log_probs[:, 0]).sum().backward()  # type: ignore[no-untyped-call]
    assert leaf.grad is not None
    assert leaf.grad.isfinite().all()
    assert (leaf.grad[~torch.tensor([mask])] == 0.0).all()


def test_samples_have_the_right_frequencies_and_are_legal() -> None:
    probabilities = torch.tensor([0.1, 0.0, 0.6, 0.3])
    mask = torch.tensor([True, False, True, True])
    logits = torch.where(mask, probabilities.log(), 3.0).expand(200_000, 4)
    log_probs = distributions.masked_log_probs(logits, mask.expand(200_000, 4))
    action = distributions.sample(log_probs, generator=torch.Generator().manual_seed(1))
    frequencies = torch.bincount(action, minlength=4) / 200_000
    assert frequencies[1] == 0.0
    # The tolerance is four standard deviations of a frequency around 0.5.
    torch.testing.assert_close(frequencies, probabilities, rtol=0, atol=4 * 0.5 / 200_000**0.5)


def test_a_draw_of_zero_makes_no_illegal_action(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = torch.tensor([[0.5, 0.0, 0.9], [0.0, 0.0, 0.0]])
    monkeypatch.setattr(torch, "rand", lambda *_, **__: draws.clone())
    mask = torch.tensor([[False, True, False], [False, False, True]])
    logits = distributions.mask_logits(torch.tensor([[3.0, -50.0, 3.0], [3.0, 3.0, -50.0]]), mask)
    assert distributions.sample(logits, generator=torch.Generator()).tolist() == [1, 2]


def test_greedy_takes_the_first_of_the_best_legal_actions() -> None:
    logits = torch.tensor([[5.0, 1.0, 1.0], [-9.0, -9.0, 0.0]])
    mask = torch.tensor([[False, True, True], [True, True, False]])
    assert distributions.greedy(logits, mask).tolist() == [1, 0]
    assert distributions.greedy(logits, None).tolist() == [0, 2]


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
    # For large |u|, 1 - tanh(u)^2 is 4 exp(-2 |u|), which underflows to 0 in any float.
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
    # The wider the Gaussian, the more of its mass is pressed against the bounds.
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
    # KL = ln 2 + (1 + 1) / (2 * 4) - 1/2, and squashing does not change it.
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
