"""Users' networks and algorithms, sound until a file names a trouble: see `trouble.py`."""

from __future__ import annotations

from typing import Any

import torch
from trouble import afoot  # type: ignore[import-not-found]  # this directory is the launch one

from arena.learning.ppo import Ppo
from arena.spaces import ObservationLayout


class Encoder(torch.nn.Module):
    """One layer. It does not learn its mark, by which a policy is known."""

    mark: torch.Tensor

    def __init__(self, observation: ObservationLayout) -> None:
        super().__init__()
        self.num_features = 8
        self.layer = torch.nn.Linear(observation.size, self.num_features)
        self.register_buffer("mark", torch.rand(1))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        kind, _, whom = afoot()
        if kind == "encoder" and (not whom or float(self.mark) == float(whom)):
            raise ValueError("the table of words has no such row")
        if kind == "device":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return torch.tanh(self.layer(rows))


class Talker(Ppo):
    """PPO that reports more figures than a message may have."""

    def update(self, *arguments: Any, **words: Any) -> dict[str, float]:
        figures = super().update(*arguments, **words)
        if afoot()[0] == "message":
            figures |= {f"figure/{number:040d}": 1.0 for number in range(40_000)}
        return figures
