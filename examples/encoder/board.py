"""An encoder for small boards: a convolution that sees a board and its mirror image."""

from __future__ import annotations

import torch
from torch import nn

from arena.spaces import ObservationLayout

WIDTH = 16


class Board(nn.Module):
    """Network from the rows of a board [N, height * width * planes] to features.

    Arena asks for an attribute ``num_features``, and that features of a row depend on nothing but
    the row: no dropout, no batch normalization.

    Args:
        observation: Layout of the observation; its only leaf is a board [height, width, planes].
    """

    def __init__(self, observation: ObservationLayout) -> None:
        super().__init__()
        (leaf,) = observation.leaves
        self.height, self.width, self.planes = leaf.shape
        self.near = nn.Conv2d(self.planes, WIDTH, kernel_size=3, padding=1)
        self.num_features = WIDTH * self.height * self.width

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Encode rows. float32 [N, F] to [N, num_features]."""
        board = rows.view(-1, self.height, self.width, self.planes).permute(0, 3, 1, 2)
        # The kernel is shared between a board and its mirror image, so both sides learn together.
        seen = torch.relu(self.near(board)) + torch.relu(self.near(board.flip(3)).flip(3))
        return seen.flatten(1)
