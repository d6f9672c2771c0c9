"""Players from outside of the league, which nobody trains: bots, and players of other runs.

They may have a fixed share of the opponents (``matchmaking.bots``), be rated with the others
(``evaluation.bots``), or have all agents of a population (``populations.NAME.player``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from arena.types import OUTSIDER_PREFIX, Player, PlayerId, PolicyId, WeightsRef, is_bot
from populations.candidates import Candidate, FloatArray
from populations.core import Matchmaker, OpponentRequest, Opponents
from populations.matchmaking.drawing import draw_count

NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_.:@/-]")
IMPORTED = "outsider_imported"
"""Event that tells of the weights in a directory, which is its subject."""

MAX_NAME = 150
"""Characters; the end of a path says more than its beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalPlayer:
    """Player from outside of the league, which is not trained.

    Attributes:
        player: Id in seatings.
        share: Share of the opponents, in [0, 1]; 0: nobody trains against it.
        weights: Weights that it plays with; None for bots.
        is_rated: Whether evaluation meets it.
    """

    player: PlayerId
    share: float = 0.0
    weights: WeightsRef | None = None
    is_rated: bool = False

    @property
    def seated(self) -> Player:
        """Return it as the occupant of a seat."""
        return Player(player=self.player, weights=self.weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalPlayersMatchmaker:
    """Matchmaker that sets the shares of players from outside aside and leaves the rest to another.

    Attributes:
        inner: Matchmaker of all other opponents.
        external: Players from outside; their shares sum to at most 1.
    """

    inner: Matchmaker
    external: Sequence[ExternalPlayer]

    def draw(self, request: OpponentRequest, *, rng: np.random.Generator) -> Opponents:
        """Draw players from outside: one draw decides about the fraction of their share."""
        shares = np.array([player.share for player in self.external])
        num_external = draw_count(float(shares.sum()), of=request.num_opponents, rng=rng)
        drawn = _spread(shares, size=num_external, rng=rng)
        players = tuple(_candidate(self.external[index]) for index in drawn)
        # The inner matchmaker refuses to draw none.
        if num_external == request.num_opponents:
            return Opponents(num_mirrors=0, players=players)
        # The rest is drawn as a whole assignment, so the inner shares hold among it.
        rest = replace(request, num_opponents=request.num_opponents - num_external)
        opponents = self.inner.draw(rest, rng=rng)
        return replace(opponents, players=(*opponents.players, *players))


def _spread(shares: FloatArray, *, size: int, rng: np.random.Generator) -> list[int]:
    """Draw players by systematic sampling: each one's number is its share, rounded by chance."""
    if size == 0:
        return []
    # Shares sum to less than 1 where others have the rest; here they are shares of the external.
    cumulative = np.cumsum(shares) / shares.sum()
    # One draw for all: (u + i) / size
    points = (rng.random() + np.arange(size)) / size
    # Rounding may leave the last border a bit below the last point.
    return [int(i) for i in np.minimum(np.searchsorted(cumulative, points), len(shares) - 1)]


def _candidate(player: ExternalPlayer) -> Candidate:
    return Candidate(
        player=player.player,
        policy=PolicyId(player.player),
        # The role is none of the league's, so that rules by role never take the player for a main
        # agent.
        role="outsider",
        entrant=player.seated.entrant,
        agent_steps=0,
    )


def external_player_key(index: int, population: str) -> str:
    """Return where a run keeps the weights of an imported player, relative to the store's root.

    Args:
        index: Place of the player in `populations.config.run_config.RunConfig.external_players`.
        population: Population that the weights play for.
    """
    return f"outsiders/{index:03d}/{population}"


def external_player_id(name: str) -> PlayerId:
    """Return the id, in seatings and results, of a player that the configuration names."""
    if is_bot(name):
        return PlayerId(name)
    return PlayerId(f"{OUTSIDER_PREFIX}{NOT_IN_IDS.sub('_', name)[-MAX_NAME:]}")
