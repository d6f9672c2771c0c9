"""Actions of a graph: in the environment's units, but with choices counted from 0.

An action that is no Dict or Tuple is the output ``action``; of others each part is an output
``action.<key>``, nested keys joined by dots. Choices are int64 [N, ...], numbers float32 [N, ...],
each in the shape of its space and within its bounds. Shapes: N rows, K numbers of an action's row,
C continuous ones.

Tests: `tests/arena/export/test_onnx.py`, `tests/arena/export/test_spaces.py`.
"""

from __future__ import annotations

import torch
from torch import nn

from arena.envs.spaces.actions import ActionLayout
from arena.envs.spaces.leaves import Leaf
from arena.export.inputs import unique_names

ACTION = "action"
LOGITS = "logits"
MEAN = "mean"
LOG_STD = "log_std"
VALUE = "value"
STATE_OUT = "state_out"


def action_names(action: ActionLayout) -> tuple[str, ...]:
    """Return the name of each leaf's output.

    Raises:
        ExportError: If two are equal, because of dots in the keys of a Dict.
    """
    return unique_names([".".join((ACTION, *leaf.path)) for leaf in action.leaves])


def parameter_names(action: ActionLayout) -> tuple[str, ...]:
    """Return the outputs that are the policy's parameters, in the order of the parameters."""
    logits = (LOGITS,) if action.branches else ()
    return (*logits, MEAN, LOG_STD) if action.num_continuous else logits


class InUnits(nn.Module):
    """Module from rows of actions to the environment's; `ActionLayout.to_environment` in torch.

    Args:
        action: Layout of the rows.
    """

    _low: torch.Tensor
    _high: torch.Tensor
    _squashed: torch.Tensor

    def __init__(self, action: ActionLayout) -> None:
        super().__init__()
        self._action = action
        self._num_branches = len(action.branches)
        self.register_buffer("_low", torch.tensor(action.low, dtype=torch.float32))
        self.register_buffer("_high", torch.tensor(action.high, dtype=torch.float32))
        self.register_buffer("_squashed", torch.from_numpy(action.squashed))

    def forward(self, rows: torch.Tensor) -> list[torch.Tensor]:
        """Return one tensor per leaf, int64 [N] or float32 [N, K]."""
        # The row of a single Discrete is its choice, int64 [N].
        if self._action.is_discrete:
            return [rows]
        numbers = self._within_bounds(rows[:, self._num_branches :])
        return [self._given(leaf, rows, numbers) for leaf in self._action.leaves]

    def _given(self, leaf: Leaf, rows: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        if leaf.is_box:
            first = leaf.offset - self._num_branches
            values = numbers[:, first : first + leaf.size]
            # As `ActionLayout.to_environment` does for a Box of integers.
            values = values.round() if leaf.dtype.kind in "iub" else values
        else:
            values = rows[:, leaf.place].long()
        # [N, size] -> [N, ...], the shape of the space
        return values.reshape(-1, *leaf.shape)

    def _within_bounds(self, drawn: torch.Tensor) -> torch.Tensor:
        if not self._action.num_continuous:
            return drawn
        low, high, squashed = self._low, self._high, self._squashed
        # Without a bound there is nothing to squash into; the unused branch must not give a NaN
        # either.
        at, to = torch.where(squashed, low, -1.0), torch.where(squashed, high, 1.0)
        # Halved first: the bounds' sum and difference may exceed a float.
        within = at / 2 + to / 2 + (to / 2 - at / 2) * torch.tanh(drawn)
        # After squashing, too: rounding may leave the bounds.
        return torch.where(squashed, within, drawn).maximum(low).minimum(high)
