"""Sequential Weng-Lin ratings for matches of two players (Plackett-Luce).

Source: Weng and Lin, "A Bayesian approximation method for online ranking" (Journal of Machine
Learning Research, 2011), algorithm 4; computed by the library ``openskill``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from populations.ratings.bradley_terry import ELO_PER_UNIT
from populations.ratings.model import E

MU = 25.0
SIGMA = 25.0 / 3.0
BETA = 25.0 / 6.0

ELO_PER_MU = ELO_PER_UNIT / (math.sqrt(2.0) * BETA)
"""Elo points per unit of mu: log-odds of a match are the difference of mu over sqrt(2) beta."""


Belief = tuple[float, float]
"""Mean and standard deviation of a player's skill, mu and sigma, in the model's own unit."""


def weng_lin_ratings(matches: Iterable[tuple[E, E, float]]) -> dict[E, Belief]:
    """Return players' ratings after their matches, played in the order given.

    Args:
        matches: First player, second player, and the first one's score in [0, 1]; above 1/2 is a
            win, 1/2 a draw.
    """
    from openskill.models import PlackettLuce

    model = PlackettLuce(mu=MU, sigma=SIGMA, beta=BETA, tau=0.0)
    ratings: dict[E, Belief] = {}
    for home, away, score in matches:
        players = home, away
        before = [ratings.setdefault(player, (MU, SIGMA)) for player in players]
        after = model.rate(
            [[model.create_rating(list(belief))] for belief in before],
            # In the library the lowest rank is the best, and ranks must be integers.
            ranks=[int(score < 0.5), int(score > 0.5)],
        )
        for player, (rating,) in zip(players, after, strict=True):
            ratings[player] = (rating.mu, rating.sigma)
    return ratings
