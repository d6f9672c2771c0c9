"""Adam whose state is tensors with stable names, and a learning rate that follows the KL.

Kingma and Ba, "Adam: A Method for Stochastic Optimization" (2015), https://arxiv.org/abs/1412.6980.

A minibatch may be divided among the ranks of a learner: each computes the gradient over its rows,
all average these, and each takes the same step. All parameters are one vector then, as one
operation on it costs less than one for each of them.

Tests: `tests/arena/learning/test_ranks.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from arena.learning.hyperparameters import ADAM_BETA2, ADAM_EPS
from arena.learning.ppo_loss import PpoLoss
from arena.learning.update_metrics import HIGHEST, LOWEST, NORM
from arena.normalization import Exchange

STATE = ("exp_avg", "exp_avg_sq", "step")

FACTOR_STEP = 1.5

MAX_FACTOR_STEPS = 9
"""38 times up and down: 3e-4 stays between 8e-6 and 1.2e-2."""


CLIP_EPSILON = 1e-6
"""Added to a norm by which a gradient is divided, as `torch.nn.utils.clip_grad_norm_` does."""


class KlFactor:
    """A factor of the learning rate that shrinks after updates with a large KL.

    The rule of RSL-RL ("adaptive"; Rudin et al., "Learning to Walk in Minutes", 2021), once per
    rollout. As a factor it leaves PBT and schedules the learning rate itself.
    """

    def __init__(self, desired_kl: float) -> None:
        self._desired_kl = desired_kl
        # The state is a whole number, which a checkpoint stores exactly.
        self._steps = torch.zeros(())

    @property
    def value(self) -> float:
        """Factor in use."""
        # A loaded number may be out of bounds.
        return float(FACTOR_STEP ** self._bounded().item())

    def follow(self, kl: float) -> None:
        """Adjust the factor to the KL of an update."""
        # n <- n - [KL > 2 d] + [KL < d / 2]
        self._steps += (kl < self._desired_kl / 2.0) - (kl > self._desired_kl * 2.0)
        self._steps.copy_(self._bounded())

    def _bounded(self) -> torch.Tensor:
        return self._steps.clamp(-MAX_FACTOR_STEPS, MAX_FACTOR_STEPS)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the live state."""
        return {"steps": self._steps}

    def reset(self) -> None:
        """Set the factor to 1."""
        self._steps.zero_()


class NamedAdam:
    """Fused Adam over a module's parameters, whose state exists from the start.

    The state holds no hyperparameters, so that restoring it can never overwrite a mutated one.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        learning_rate: float,
        beta1: float,
        beta2: float = ADAM_BETA2,
        eps: float = ADAM_EPS,
    ) -> None:
        self._parameters = dict(module.named_parameters())
        self._adam = torch.optim.Adam(
            self._parameters.values(),
            lr=learning_rate,
            betas=(beta1, beta2),
            eps=eps,
            fused=True,
        )
        # torch creates the state in the first step, but a checkpoint may be written before.
        for parameter in self._parameters.values():
            self._adam.state[parameter] = {
                # The step counter is on the parameter's device, as fused Adam requires.
                "step": torch.zeros((), device=parameter.device),
                "exp_avg": torch.zeros_like(parameter, requires_grad=False),
                "exp_avg_sq": torch.zeros_like(parameter, requires_grad=False),
            }

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Parameters, in the order of their names in the module."""
        return list(self._parameters.values())

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """Hyperparameters by torch's names."""
        return self._adam.param_groups[0]

    def state(self, parameter: nn.Parameter) -> dict[str, torch.Tensor]:
        """Return the live state of a parameter, by `STATE`."""
        state: dict[str, torch.Tensor] = self._adam.state[parameter]
        return state

    @property
    def learning_rate(self) -> float:
        """Learning rate, read back from the optimizer."""
        return float(self._adam.param_groups[0]["lr"])

    def apply(
        self,
        *,
        learning_rate: float,
        beta1: float,
        beta2: float = ADAM_BETA2,
        eps: float = ADAM_EPS,
    ) -> None:
        """Set the hyperparameters."""
        for group in self._adam.param_groups:
            group.update(lr=learning_rate, betas=(beta1, beta2), eps=eps)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the live state: ``exp_avg.<parameter>``, ``exp_avg_sq.<...>``, ``step.<...>``."""
        return {
            f"{kind}.{name}": self._adam.state[parameter][kind]
            for kind in STATE
            for name, parameter in self._parameters.items()
        }

    def reset(self) -> None:
        """Reset moments and step counters, as if fresh."""
        for tensor in self.tensors().values():
            tensor.zero_()

    def compute_gradients(self, loss: torch.Tensor, *, max_norm: float) -> torch.Tensor:
        """Backpropagate and scale down to ``max_norm``; return the norm before. Scalar."""
        self._adam.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        # g <- g min(1, max_norm / |g|)
        return nn.utils.clip_grad_norm_(self._parameters.values(), max_norm)

    def step(self) -> None:
        """Take a step along the gradients."""
        self._adam.step()


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
            num_rows: Number of this rank's rows.
            names: Names of a step's numbers.
            max_norm: Norm down to which a longer gradient is scaled.
            exchange: Way to the other ranks, at least one of which has rows.

        Returns:
            Numbers of the step over the rows of all ranks, in the order of their names.
        """
        of_loss = [name for name in names if name != NORM]
        rows = exchange(self._own(loss, num_rows=num_rows, num_numbers=len(of_loss)))
        # Python's floats have 64 bits, so every rank computes the same numbers.
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
        # g = sum of n_r / n g_r. The rows are added one by one, because a matrix product may round
        # differently in ranks whose memory is aligned differently.
        gradients, total = rows[:, 1 + len(of_loss) :], self._gradient
        torch.mul(gradients[0], shares[0], out=total)
        for row, share in zip(gradients[1:], shares[1:], strict=True):
            total.add_(row, alpha=share)
        found[NORM] = float(total.norm())
        # g <- g min(1, max_norm / |g|). With a norm that is not finite the caller skips the step.
        if found[NORM] > max_norm - CLIP_EPSILON:
            total.mul_(max_norm / (found[NORM] + CLIP_EPSILON))
        return [found[name] for name in names]

    def _own(self, loss: PpoLoss | None, *, num_rows: int, num_numbers: int) -> torch.Tensor:
        """Return this rank's rows, metrics and gradient. float32 [1 + K + P]."""
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
            # All parameters have the same step count.
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
