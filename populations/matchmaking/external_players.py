"""Players from outside the run, which are not trained: bots, and players of other runs.

They may have a fixed share of the opponents (``matchmaking.bots``), be rated like other players
(``evaluation.bots``), or play all agents of a population (``populations.NAME.player``).
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
"""Kind of the event that records copied weights; its subject is their directory."""

MAX_NAME = 150
"""Maximum characters of a name; the end of a path is kept, as it identifies the player better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalPlayer:
    """Player from outside the run, which is not trained.

    Attributes:
        player: Id in seatings.
        share: Share of the training opponents, in [0, 1].
        weights: Weights that it plays with; None for bots.
        is_rated: Whether it plays evaluation matches.
    """

    player: PlayerId
    share: float = 0.0
    weights: WeightsRef | None = None
    is_rated: bool = False

    @property
    def seated(self) -> Player:
        """Return the player as the occupant of a seat."""
        return Player(player=self.player, weights=self.weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalPlayersMatchmaker:
    """Matchmaker that draws players from outside by their shares, and the rest by another one.

    Attributes:
        inner: Matchmaker of all other opponents.
        external: Players from outside; their shares sum to at most 1.
    """

    inner: Matchmaker
    external: Sequence[ExternalPlayer]

    def draw(self, request: OpponentRequest, *, rng: np.random.Generator) -> Opponents:
        """Draw players from outside by `draw_count`, and the rest by the inner matchmaker."""
        shares = np.array([player.share for player in self.external])
        num_external = draw_count(float(shares.sum()), of=request.num_opponents, rng=rng)
        drawn = _spread(shares, size=num_external, rng=rng)
        players = tuple(_candidate(self.external[index]) for index in drawn)
        # Matchmakers raise an error for 0 opponents, so the inner one is not called.
        if num_external == request.num_opponents:
            return Opponents(num_mirrors=0, players=players)
        # The rest is drawn as an assignment of its own, so the inner shares apply to it.
        rest = replace(request, num_opponents=request.num_opponents - num_external)
        opponents = self.inner.draw(rest, rng=rng)
        return replace(opponents, players=(*opponents.players, *players))


def _spread(shares: FloatArray, *, size: int, rng: np.random.Generator) -> list[int]:
    """Draw indices of players by systematic sampling: numbers are shares, rounded at random."""
    if size == 0:
        return []
    # Shares are of all opponents, so they are scaled to sum to 1 among players from outside.
    cumulative = np.cumsum(shares) / shares.sum()
    # One random number u gives all points: (u + i) / size.
    points = (rng.random() + np.arange(size)) / size
    # By rounding, the last border may be slightly below the last point.
    return [int(i) for i in np.minimum(np.searchsorted(cumulative, points), len(shares) - 1)]


def _candidate(player: ExternalPlayer) -> Candidate:
    return Candidate(
        player=player.player,
        policy=PolicyId(player.player),
        # No policy has this role, so that rules by role never take the player for a main agent.
        role="outsider",
        entrant=player.seated.entrant,
        agent_steps=0,
    )


def external_player_key(index: int, population: str) -> str:
    """Return the directory of an imported player's weights, relative to the store's root.

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
