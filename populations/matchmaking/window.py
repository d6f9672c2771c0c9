"""The newest ghosts, all alike: self-play in Unity's ML-Agents.

Source: ML-Agents toolkit, trainer settings ``window`` and ``play_against_latest_model_ratio``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from populations.core import OpponentRequest, Opponents
from populations.matchmaking.latest import combine, draw_num_latest
from populations.matchmaking.uniform import draw_uniformly


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowMatchmaker:
    """Older ghosts are out of reach, so what they knew may be forgotten.

    Attributes:
        latest_ratio: Share of opponents that are the latest instead.
        window: How many of the newest ghosts are drawn from, by agent steps.
    """

    latest_ratio: float
    window: int

    def draw(self, request: OpponentRequest, *, rng: np.random.Generator) -> Opponents:
        """The latest and ghosts out of the window."""
        if self.window < 1:
            raise ValueError(f"window must be at least 1, got {self.window!r}")
        num_latest = draw_num_latest(request, latest_ratio=self.latest_ratio, rng=rng)
        newest = sorted(request.ghosts, key=lambda ghost: (ghost.agent_steps, ghost.player))
        ghosts = draw_uniformly(
            newest[-self.window :], num_draws=request.num_opponents - num_latest, rng=rng
        )
        return combine(request, num_latest=num_latest, ghosts=ghosts, rng=rng)
