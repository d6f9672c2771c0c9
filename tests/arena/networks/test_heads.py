from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from arena.networks import distributions


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
    # Four standard deviations of a frequency around 0.5.
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
