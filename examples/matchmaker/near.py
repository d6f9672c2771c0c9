"""A matchmaker that prefers ghosts of about the trainee's own strength."""

from __future__ import annotations

import numpy as np

from populations.core import OpponentRequest, Opponents


class Near:
    """Rule that draws ghosts by the distance of their predicted score from 1/2.

    Args:
        width: Distance at which a ghost is drawn about a third as often as an equal one.
        mirror_share: Share of opponents that are the trainee itself.
    """

    def __init__(self, *, width: float = 0.2, mirror_share: float = 0.25) -> None:
        self.width = width
        self.mirror_share = mirror_share

    def draw(self, request: OpponentRequest, *, rng: np.random.Generator) -> Opponents:
        """Draw the opponents of one assignment.

        Raises:
            ValueError: If there is nobody to be drawn.
        """
        number = request.num_opponents
        if not len(request.ghosts):
            # There are no ghosts when a run begins: draw the trainee itself or other populations'
            # latest.
            if request.is_own_population:
                return Opponents(num_mirrors=number, players=())
            if not len(request.latest):
                raise ValueError("there is neither a ghost nor an active policy")
            drawn = rng.integers(len(request.latest), size=number)
            return Opponents(num_mirrors=0, players=tuple(request.latest[int(i)] for i in drawn))
        num_mirrors = 0
        if request.is_own_population:
            num_mirrors = int(rng.binomial(number, self.mirror_share))
        distance = request.win_rates(request.ghosts) - 0.5
        weights = np.exp(-((distance / self.width) ** 2))
        drawn = rng.choice(
            len(request.ghosts), size=number - num_mirrors, p=weights / weights.sum()
        )
        return Opponents(
            num_mirrors=num_mirrors, players=tuple(request.ghosts[int(i)] for i in drawn)
        )
