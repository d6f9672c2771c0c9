"""Adam whose state is tensors with stable names, and a learning rate that follows the KL.

Kingma and Ba, "Adam: A Method for Stochastic Optimization" (2015), https://arxiv.org/abs/1412.6980.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from arena.learning.hyperparameters import ADAM_BETA2, ADAM_EPS

STATE = ("exp_avg", "exp_avg_sq", "step")

FACTOR_STEP = 1.5

MAX_FACTOR_STEPS = 9
"""38 times up and down: 3e-4 stays between 8e-6 and 1.2e-2."""


class KlFactor:
    """A factor of the learning rate that is lower after updates which went too far.

    The rule of RSL-RL ("adaptive"; Rudin et al., "Learning to Walk in Minutes", 2021), once per
    rollout. As a factor it leaves PBT and schedules the learning rate itself.
    """

    def __init__(self, desired_kl: float) -> None:
        self._desired_kl = desired_kl
        # A whole number, which a checkpoint keeps exactly.
        self._steps = torch.zeros(())

    @property
    def value(self) -> float:
        """Factor in use."""
        # A loaded number may be any.
        return float(FACTOR_STEP ** self._bounded().item())

    def follow(self, kl: float) -> None:
        """Take an update's KL into account."""
        # n <- n - [KL > 2 d] + [KL < d / 2]
        self._steps += (kl < self._desired_kl / 2.0) - (kl > self._desired_kl * 2.0)
        self._steps.copy_(self._bounded())

    def _bounded(self) -> torch.Tensor:
        return self._steps.clamp(-MAX_FACTOR_STEPS, MAX_FACTOR_STEPS)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the live state."""
        return {"steps": self._steps}

    def reset(self) -> None:
        """Begin with 1."""
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
        # torch makes the state in the first step, but a checkpoint may come before.
        for parameter in self._parameters.values():
            self._adam.state[parameter] = {
                # On the parameter's device, as fused Adam wants it.
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
        """Forget all gradients, as if fresh."""
        for tensor in self.tensors().values():
            tensor.zero_()

    def compute_gradients(self, loss: torch.Tensor, *, max_norm: float) -> torch.Tensor:
        """Backpropagate and scale down to ``max_norm``. Returns the norm before. Scalar."""
        self._adam.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        # g <- g min(1, max_norm / |g|)
        return nn.utils.clip_grad_norm_(self._parameters.values(), max_norm)

    def step(self) -> None:
        """Take a step along the gradients."""
        self._adam.step()
