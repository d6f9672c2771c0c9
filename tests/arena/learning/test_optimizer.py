from __future__ import annotations

import pytest
from torch import nn

from arena.learning.optimizer import NamedAdam


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
    # A first step of Adam is the learning rate long, here by 1 / (1 + eps).
    assert layer.weight.item() == pytest.approx(-0.125, rel=1e-4)
    assert adam.tensors()["exp_avg.weight"].item() == pytest.approx(0.1)
    assert adam.tensors()["exp_avg_sq.weight"].item() == pytest.approx(0.5)
    adam.reset()
    assert not any(tensor.any() for tensor in adam.tensors().values())
