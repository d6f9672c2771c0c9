from __future__ import annotations

import pytest
import torch

from tools.bench.stages import Products

SIZES = (5, 4, 3)


def test_the_products_are_those_of_a_linear_network() -> None:
    torch.manual_seed(1)
    products = Products(SIZES, num_rows=6)
    weights = [weight.clone().requires_grad_() for weight in products._weights]
    observation = products._rows[0]
    outputs = observation @ weights[0].t() @ weights[1].t()

    products.forward()
    assert torch.allclose(products._rows[-1], outputs.detach(), atol=1e-6)

    torch.autograd.backward(outputs, products._row_gradients[-1])
    products.backward()
    for weight, gradient in zip(weights, products._weight_gradients, strict=True):
        assert weight.grad is not None
        assert torch.allclose(gradient, weight.grad, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_update_multiplies_every_minibatch_in_its_dtype(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[int] = []
    multiply = torch.mm

    def counting(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        assert {a.dtype, b.dtype, out.dtype} == {dtype}
        rows.append(len(a))
        return multiply(a, b, out=out)

    products = Products(SIZES, num_rows=12, dtype=dtype)
    monkeypatch.setattr(torch, "mm", counting)
    # Three epochs of 4 minibatches.
    products.update(3 * 4)
    # Of two layers: 2 products forward, 2 for the weights, 1 for what lies between them.
    assert len(rows) == 3 * 4 * 5
    assert rows.count(12) == 3 * 4 * 3
