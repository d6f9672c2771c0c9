"""Normalization of a part of an observation's numbers by running statistics.

Shapes: N rows, F numbers of a flattened observation, K of them normalized.

Tests: `tests/arena/networks/test_actor_critic.py`, `tests/arena/networks/test_encoders.py`.
"""

from __future__ import annotations

import torch

from arena.envs.spaces.agent_id import is_agent_id
from arena.envs.spaces.observations import ObservationLayout
from arena.networks.planes import is_image
from arena.normalization import Exchange, RunningNormalizer

# In deviations. `PolicyStack` clips by the same limit.
OBSERVATION_CLIP = 10.0


class PartNormalizer(RunningNormalizer):
    """Normalizer of some columns of rows; the others pass unchanged.

    Args:
        columns: Normalized columns. int64 [K].
        row_size: F.
        clip: As in `RunningNormalizer`.
    """

    _columns: torch.Tensor

    def __init__(self, columns: torch.Tensor, *, row_size: int, clip: float) -> None:
        super().__init__(len(columns), clip=clip)
        self._row_size = row_size
        self.register_buffer("_columns", columns, persistent=False)

    def by_column(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return mean and deviation of every column: 0 and 1 where it passes unchanged. float32 [F]
        each.
        """
        mean = self.mean.new_zeros(self._row_size).index_copy(0, self._columns, self.mean)
        ones = self.mean.new_ones(self._row_size)
        return mean, ones.index_copy(0, self._columns, self.deviation)

    def normalize(self, values: torch.Tensor) -> torch.Tensor:
        """Normalize rows. [N, F] of any dtype to float32 [N, F]."""
        # [N, F] -> [N, K] -> [N, F]
        part = super().normalize(values.index_select(1, self._columns))
        return values.float().index_copy(1, self._columns, part)

    def denormalize(self, values: torch.Tensor) -> torch.Tensor:
        """Undo `normalize`, except its clipping. [N, F] to [N, F]."""
        part = super().denormalize(values.index_select(1, self._columns))
        return values.index_copy(1, self._columns, part)

    def update(self, values: torch.Tensor, *, exchange: Exchange | None = None) -> bool:
        """Merge a batch [N, F] of any dtype."""
        return super().update(values.index_select(1, self._columns).float(), exchange=exchange)


def make_observation_normalizer(observation: ObservationLayout) -> RunningNormalizer | None:
    """Make a normalizer of everything but images and agent ids; None if nothing remains."""
    is_normalized = torch.ones(observation.size, dtype=torch.bool)
    for leaf in observation.leaves:
        if is_image(leaf) or is_agent_id(leaf):
            is_normalized[leaf.place] = False
    columns = is_normalized.nonzero().squeeze(1)
    if not len(columns) and observation.size:
        return None
    if len(columns) == observation.size and observation.dtype.kind == "f":
        return RunningNormalizer(observation.size, clip=OBSERVATION_CLIP)
    return PartNormalizer(columns, row_size=observation.size, clip=OBSERVATION_CLIP)
