"""A share of opponents that are the other living members of the trainee's own population.

Source: population-based training in Sample Factory (Petrenko et al., 2020), whose policies play the
current versions of one another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from populations.core import Matchmaker, OpponentRequest, Opponents
from populations.matchmaking.drawing import draw_count


@dataclass(frozen=True, slots=True, kw_only=True)
class LivingMatchmaker:
    """Matchmaker that sets a share of living members aside and leaves the rest to another.

    Attributes:
        inner: Matchmaker of all other opponents.
        living_ratio: Share of opponents, in [0, 1], that are the latest checkpoints of the other
            active policies, all alike. ``inner`` has it too where there is none, and where the
            opponents are of another population.
    """

    inner: Matchmaker
    living_ratio: float

    def draw(self, request: OpponentRequest, *, rng: np.random.Generator) -> Opponents:
        """Draw living members, each as often as any other, and the rest by the inner rule."""
        # A population of one, or another population, has no other living members to offer.
        if not request.is_own_population or not len(request.latest):
            return self.inner.draw(request, rng=rng)
        num_living = draw_count(self.living_ratio, of=request.num_opponents, rng=rng)
        # A permutation repeated as often as needed: members differ by at most one opponent.
        drawn = np.resize(rng.permutation(len(request.latest)), num_living)
        living = tuple(request.latest[int(index)] for index in drawn)
        # The inner matchmaker refuses to draw none.
        if num_living == request.num_opponents:
            return Opponents(num_mirrors=0, players=living)
        rest = replace(request, num_opponents=request.num_opponents - num_living)
        opponents = self.inner.draw(rest, rng=rng)
        return replace(opponents, players=(*opponents.players, *living))
