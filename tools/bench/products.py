"""The matrix products of a network and nothing else: what its arithmetic alone would take.

Shapes: M rows, layer i has W[i] of sizes[i + 1] by sizes[i].
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


class Products:
    """The products of one pass over M rows, into tensors that are there already.

    No bias, activation, loss, optimizer or Python object per layer but these.

    Args:
        sizes: Widths from the observation to the outputs; at least two.
        num_rows: M.
        dtype: Precision of all products.
        device: Device of all products.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        num_rows: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> None:
        def normal(rows: int, columns: int) -> torch.Tensor:
            # Variance 1/columns: products neither overflow nor become denormal, at any width.
            values = torch.randn(rows, columns).mul_(columns**-0.5)
            return values.to(device=device, dtype=dtype)

        layers = range(len(sizes) - 1)
        self._weights = [normal(sizes[i + 1], sizes[i]) for i in layers]
        self._weight_gradients = [torch.empty_like(weight) for weight in self._weights]
        self._rows = [normal(num_rows, size) for size in sizes]
        # One for each row tensor, so that indices agree; the first is not used.
        self._row_gradients = [normal(num_rows, size) for size in sizes]

    def forward(self) -> None:
        """Compute x[i + 1] = x[i] W[i]^T."""
        for i, weight in enumerate(self._weights):
            # x_{i+1} = x_i W_i^T
            torch.mm(self._rows[i], weight.t(), out=self._rows[i + 1])

    def forward_rows(self) -> int:
        """Compute the same, and return the number of rows."""
        self.forward()
        return len(self._rows[0])

    def backward(self) -> None:
        """Compute dW[i] = dx[i + 1]^T x[i], and dx[i] = dx[i + 1] W[i] but for the observation."""
        for i in reversed(range(len(self._weights))):
            gradient = self._row_gradients[i + 1]
            # dW_i = dx_{i+1}^T x_i
            torch.mm(gradient.t(), self._rows[i], out=self._weight_gradients[i])
            # The observation needs no gradient.
            if i > 0:
                torch.mm(gradient, self._weights[i], out=self._row_gradients[i])


class UpdateProducts:
    """The products of all epochs and minibatches of one update.

    Args:
        sizes: Widths of layers, as for `Products`.
        num_decisions: Number of decisions in the rollout.
        num_epochs: Passes over it.
        num_minibatches: Equal parts of a pass, their rest left out.
        dtype: Precision of all products.
        device: Device of all products.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        num_decisions: int,
        num_epochs: int,
        num_minibatches: int,
        dtype: torch.dtype,
        device: torch.device | None = None,
    ) -> None:
        num_rows = max(1, num_decisions // num_minibatches)
        self._products = Products(sizes, num_rows=num_rows, dtype=dtype, device=device)
        # A pass is one minibatch of one epoch.
        self._num_passes = num_epochs * num_minibatches
        self._num_decisions = num_rows * num_minibatches

    def __call__(self) -> int:
        """Multiply, and return the number of decisions."""
        for _ in range(self._num_passes):
            self._products.forward()
            self._products.backward()
        return self._num_decisions
