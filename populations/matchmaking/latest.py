"""Self-play: every policy plays the latest, none meets a ghost."""

from __future__ import annotations

import numpy as np

from arena.config import Model
from populations.core import OpponentRequest, Opponents
from populations.matchmaking.drawing import Distribution, draw_opponents, with_latest
from populations.rule_kinds import RuleKind


class LatestMatchmaker:
    """Mirror self-play; against another population, latest checkpoints drawn uniformly."""

    def distribution(self, request: OpponentRequest, *, rng: np.random.Generator) -> Distribution:
        """Return a distribution of the latest alone, whatever ghosts there are."""
        del rng
        ghosts = np.zeros(len(request.ghosts))
        if not request.is_own_population and not len(request.latest) and len(ghosts):
            # Nobody of the other population is active: its ghosts stand in.
            ghosts = np.full(len(ghosts), 1.0 / len(ghosts))
        return with_latest(request, ghosts=ghosts, latest_ratio=1.0)

    def draw(self, request: OpponentRequest, *, rng: np.random.Generator) -> Opponents:
        """Draw the latest alone."""
        return draw_opponents(request, self.distribution(request, rng=rng), rng=rng)


KIND = RuleKind(
    name="latest",
    settings=Model,
    make=lambda _: LatestMatchmaker(),
    unread=frozenset({"latest_ratio"}),
)
