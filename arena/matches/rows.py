"""The rows of a flattened group that one player decides, taken out and put back.

Shapes: B environments, S decisions of a population at once, F features, n actions.
"""

from __future__ import annotations

import torch

from arena.envs.base import Group


class Rows:
    """The rows of a flattened group that one player decides.

    Args:
        group: Decisions that are asked for.
        where: Decisions of the player. bool [B, S].
    """

    def __init__(self, group: Group, *, where: torch.Tensor) -> None:
        self._group = group
        self.index = where.flatten().nonzero().squeeze(1)
        """Positions in the flattened group. int64 [rows]."""
        # Mirror self-play in a game without pauses: everything is taken, nothing is gathered.
        self._all = len(self.index) == where.numel()

    def __len__(self) -> int:
        """Return the number of decisions."""
        return len(self.index)

    def take(self, per_decision: torch.Tensor) -> torch.Tensor:
        """Return the rows of a tensor [B, S, ...]. Shape [rows, ...]."""
        flat = per_decision.flatten(0, 1)
        # Several times faster than indexing.
        return flat if self._all else flat.index_select(0, self.index)

    @property
    def observation(self) -> torch.Tensor:
        """[rows, F]."""
        return self.take(self._group.observation)

    @property
    def action_mask(self) -> torch.Tensor | None:
        """Legal actions, bool [rows, n], or None without masks."""
        mask = self._group.action_mask
        return None if mask is None else self.take(mask)

    def put(self, per_decision: torch.Tensor, values: torch.Tensor) -> None:
        """Write values [rows, ...] into a contiguous tensor [B, S, ...]."""
        # view, not flatten: a copy would take the values and be lost.
        flat = per_decision.view(-1, *per_decision.shape[2:])
        if self._all:
            flat.copy_(values)
        else:
            flat.index_copy_(0, self.index, values.to(flat.dtype))
