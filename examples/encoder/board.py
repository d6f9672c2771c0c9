"""An encoder for small boards: a convolution, and attention between cells."""

from __future__ import annotations

import torch
from torch import nn

from arena.envs.spaces.observations import ObservationLayout

WIDTH = 16


class Board(nn.Module):
    """Network from the rows of a board [N, height * width * planes] to features.

    The attribute ``num_features`` is all that Arena asks of it, and that features of a row depend
    on nothing but the row: no dropout, no batch normalization.

    Args:
        observation: Layout of the observation; its only leaf is a board [height, width, planes].
    """

    def __init__(self, observation: ObservationLayout) -> None:
        super().__init__()
        (leaf,) = observation.leaves
        self.height, self.width, self.planes = leaf.shape
        self.near = nn.Conv2d(self.planes, WIDTH, kernel_size=3, padding=1)
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)
        self.num_features = 2 * WIDTH * self.height * self.width

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Encode rows. float32 [N, F] to [N, num_features]."""
        board = rows.view(-1, self.height, self.width, self.planes).permute(0, 3, 1, 2)
        cells = torch.relu(self.near(board)).flatten(2).transpose(1, 2)
        # [N, cells, cells]: how much each cell looks at each other one
        scores = self.query(cells) @ self.key(cells).transpose(1, 2) / WIDTH**0.5
        far = torch.softmax(scores, dim=2) @ cells
        return torch.cat([cells, far], dim=2).flatten(1)
