from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.networks import distributions
from arena.networks.distributions import Distribution, make_distribution
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
    # A branch with one choice has nothing to learn.
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
