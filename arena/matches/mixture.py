"""A player that is one of several actors, drawn anew for each match."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from arena.core import Actor


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorMixture:
    """Several actors, one of which plays a match from its beginning to its end.

    Attributes:
        actors: Actors, at least one.
        probabilities: Probability of each; they sum to one.
    """

    actors: tuple[Actor, ...]
    probabilities: tuple[float, ...]


def draw_lineups(
    players: Sequence[Actor | ActorMixture],
    *,
    identities: Sequence[Hashable],
    num_matches: int,
    rng: np.random.Generator,
) -> list[tuple[tuple[Actor, ...], int]]:
    """Draw the actors of some matches.

    Args:
        players: Player of each seat.
        identities: Keys, equal where one player has several seats: it draws once for all of them.
        num_matches: Number of matches.
        rng: Source of one draw for each match and mixture.

    Returns:
        Actors, one per seat, and the number of their matches, which sum to ``num_matches``.
    """
    drawn = {
        identity: rng.choice(len(player.actors), size=num_matches, p=player.probabilities).tolist()
        # dict: a player with several seats draws once and sits in all of them.
        for identity, player in dict(zip(identities, players, strict=True)).items()
        if isinstance(player, ActorMixture)
    }
    if not drawn:
        return [(tuple(p for p in players if not isinstance(p, ActorMixture)), num_matches)]
    # Matches with the same actors are one block: nothing tells them apart but their seeds.
    counts = Counter(zip(*drawn.values(), strict=True))
    lineups = []
    # sorted: the order of blocks decides which seeds they get.
    for choice, count in sorted(counts.items()):
        chosen = dict(zip(drawn, choice, strict=True))
        actors = tuple(
            player.actors[chosen[identity]] if isinstance(player, ActorMixture) else player
            for identity, player in zip(identities, players, strict=True)
        )
        lineups.append((actors, count))
    return lineups
