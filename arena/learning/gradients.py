"""Optimizer steps whose minibatch is divided among the ranks of a learner.

Each rank computes the gradient over its rows, all average these, and each takes the same step: all
parameters are one vector then, as one operation on it costs less than one for each of them.

Tests: `tests/arena/learning/test_ranks.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from arena.learning.optimizer import STATE, NamedAdam
from arena.learning.ppo_loss import PpoLoss
from arena.learning.update_metrics import HIGHEST, LOWEST, NORM
from arena.normalization import Exchange

CLIP_EPSILON = 1e-6
"""Added to a norm by which a gradient is divided, as `torch.nn.utils.clip_grad_norm_` does."""


class RankSteps:
    """Steps of an optimizer that ranks take together. Owned by the algorithm.

    Args:
        optimizer: Optimizer of a network, whose parameters and state become views of vectors.
    """

    def __init__(self, optimizer: NamedAdam) -> None:
        self._optimizer = optimizer
        self._parameters = optimizer.parameters
        self._sizes = [parameter.numel() for parameter in self._parameters]
        self._values = _joined(self._parameters)
        self._moments = {
            kind: _joined([optimizer.state(parameter)[kind] for parameter in self._parameters])
            for kind in STATE
        }
        for at, parameter in enumerate(self._parameters):
            state = optimizer.state(parameter)
            parameter.data = self._view(self._values, at)
            for kind in ("exp_avg", "exp_avg_sq"):
                state[kind] = self._view(self._moments[kind], at)
            state["step"] = self._moments["step"][at]
        self._gradient = torch.zeros_like(self._values)

    def _view(self, whole: torch.Tensor, at: int) -> torch.Tensor:
        first = sum(self._sizes[:at])
        return whole[first : first + self._sizes[at]].view_as(self._parameters[at])

    def compute_gradient(
        self,
        loss: PpoLoss | None,
        *,
        num_rows: int,
        names: Sequence[str],
        max_norm: float,
        exchange: Exchange,
    ) -> list[float]:
        """Compute the gradient of a minibatch of all ranks, the same bits in each of them.

        A loss is a mean over rows, so each rank weighs by its rows in the minibatch.

        Args:
            loss: Loss over this rank's rows; None: it has none.
            num_rows: Number of these.
            names: Names of a step's numbers.
            max_norm: Norm down to which a longer gradient is scaled.
            exchange: Way to the other ranks, at least one of which has rows.

        Returns:
            Numbers of the step over the rows of all ranks, in the order of their names.
        """
        of_loss = [name for name in names if name != NORM]
        rows = exchange(self._own(loss, num_rows=num_rows, num_numbers=len(of_loss)))
        # Python's numbers have 64 bits, in each rank the same.
        heads: list[list[float]] = rows[:, : 1 + len(of_loss)].tolist()
        # n_r / n
        num_all = sum(head[0] for head in heads)
        shares = [head[0] / num_all for head in heads]
        found = {}
        for at, name in enumerate(of_loss, start=1):
            column = [head[at] for head in heads if head[0]]
            if name in LOWEST or name in HIGHEST:
                found[name] = min(column) if name in LOWEST else max(column)
            else:
                weights = (share for share in shares if share)
                found[name] = sum(w * x for w, x in zip(weights, column, strict=True))
        # g = sum of n_r / n g_r. Whole rows one after the other: a product of matrices could round
        # otherwise in a rank whose memory begins elsewhere.
        gradients, total = rows[:, 1 + len(of_loss) :], self._gradient
        torch.mul(gradients[0], shares[0], out=total)
        for row, share in zip(gradients[1:], shares[1:], strict=True):
            total.add_(row, alpha=share)
        found[NORM] = float(total.norm())
        # g <- g min(1, max_norm / |g|); the result of a norm that is not finite is not used.
        if found[NORM] > max_norm - CLIP_EPSILON:
            total.mul_(max_norm / (found[NORM] + CLIP_EPSILON))
        return [found[name] for name in names]

    def _own(self, loss: PpoLoss | None, *, num_rows: int, num_numbers: int) -> torch.Tensor:
        """Return this rank's rows, numbers and gradient. float32 [1 + K + P]."""
        if loss is None:
            return torch.zeros(1 + num_numbers + len(self._values))
        for parameter in self._parameters:
            parameter.grad = None
        loss.total.backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            numbers = torch.stack([*loss.terms, *loss.diagnostics])
            parts = (torch.zeros_like(p) if p.grad is None else p.grad for p in self._parameters)
            head = torch.tensor([float(num_rows)])
            return torch.cat([head, numbers, *(part.reshape(-1) for part in parts)])

    def step(self) -> None:
        """Take a step along the gradient."""
        numbers, steps = self._optimizer.hyperparameters, self._moments["step"]
        steps.add_(1.0)
        torch._fused_adam_(
            [self._values],
            [self._gradient],
            [self._moments["exp_avg"]],
            [self._moments["exp_avg_sq"]],
            [],
            # They are all equal.
            [steps[0]],
            lr=numbers["lr"],
            beta1=numbers["betas"][0],
            beta2=numbers["betas"][1],
            eps=numbers["eps"],
            weight_decay=0.0,
            amsgrad=False,
            maximize=False,
        )


def _joined(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
