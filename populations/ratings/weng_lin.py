"""Sequential Weng-Lin ratings (Plackett-Luce): any number of sides, and teams.

Source: Weng and Lin, "A Bayesian approximation method for online ranking" (Journal of Machine
Learning Research, 2011), algorithm 4; computed by the library ``openskill``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

from populations.ratings.bradley_terry import ELO_PER_UNIT
from populations.ratings.model import E, TeamGame

MU = 25.0
SIGMA = 25.0 / 3.0
BETA = 25.0 / 6.0

ELO_PER_MU = ELO_PER_UNIT / (math.sqrt(2.0) * BETA)
"""Elo points of one unit of mu.

Between two players of known skills, the model's log-odds are the difference of their mu over
sqrt(2) beta.
"""


Belief = tuple[float, float]
"""Mean and standard deviation of a player's skill, mu and sigma, in the model's own unit."""


def weng_lin_ratings(
    games: Iterable[TeamGame[E]],
    *,
    start: Mapping[E, Belief] | None = None,
    frozen: Collection[E] = (),
    tau: float = 0.0,
) -> dict[E, Belief]:
    """Rate players by their games, in the order given.

    Args:
        games: Games in the order in which they were played.
        start: Ratings of players that already have one.
        frozen: Players whose rating never moves; their opponents' ratings do.
        tau: Standard deviation of a skill's drift from game to game; 0 for players that do not
            change, 25 / 300 in the library.

    Raises:
        ValueError: If a game does not satisfy `TeamGame`, or ``tau`` is negative or not finite.
    """
    from openskill.models import PlackettLuce

    if not (math.isfinite(tau) and tau >= 0.0):
        raise ValueError(f"tau must be finite and at least 0, got {tau!r}")
    model = PlackettLuce(mu=MU, sigma=SIGMA, beta=BETA, tau=tau)
    ratings = dict(start or {})
    for game in games:
        game.check()
        before = [
            [ratings.setdefault(player, (MU, SIGMA)) for player in side] for side in game.sides
        ]
        after = model.rate(
            [[model.create_rating(list(belief)) for belief in side] for side in before],
            # The library ranks the lowest number first.
            ranks=[-result for result in game.results],
        )
        for side, rated in zip(game.sides, after, strict=True):
            for player, rating in zip(side, rated, strict=True):
                if player not in frozen:
                    ratings[player] = (rating.mu, rating.sigma)
    return ratings
