"""How well each player is known, kept between decisions until something about it changes.

Not durable: it follows from the journal's rows and the last fit, and a resumed controller makes it
anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from arena.types import Digest, Entrant, Player, PlayerId, PolicyId
from populations.controller.indexes.teams import (
    FrozenTeam,
    frozen_team,
    ghost_team,
    ghosts_by_origin,
    is_whole,
)
from populations.league.league import League
from populations.league.ratings import Ratings
from populations.ratings.bradley_terry import BradleyTerry
from populations.records.rows import GhostRow, PolicyRow

MAX_BEST_GHOSTS = 16
MAX_DRAWN_GHOSTS = 32
"""Ghosts that are looked at for one evaluation: the best rated ones, and some drawn evenly."""

_MODEL = BradleyTerry()


class PlayerStrength(NamedTuple):
    """A player and what is known of its strength.

    Attributes:
        player: With the frozen weights that would play.
        team: It and those who play beside it in cooperation.
        entrant: As results name it.
        population: Its population.
        kind: Policies are ranked by PBT; they, those that left (``retired``) and ghosts may become
            champion.
        rating: Elo; its own, or that of the nearest rated weights in its line.
        position: Place of those weights in the population's ratings; None: its line is unrated.
        own_variance: Elo squared, apart from what it shares with those weights.
    """

    player: Player
    team: FrozenTeam
    entrant: Entrant
    population: str
    kind: str
    rating: float
    position: int | None
    own_variance: float


class _Kept(Struct):
    """Players of one population under its last ratings.

    Attributes:
        names: All policies, in their order in the tables.
        changed: Policies to look at again.
        policies: Those that can be played.
        ghosts: Those that were looked at.
    """

    names: dict[PolicyId, None]
    changed: dict[PolicyId, None]
    policies: dict[PolicyId, PlayerStrength] = {}
    ghosts: dict[PlayerId, PlayerStrength] = {}


class _Ghosts(Struct):
    """Ghosts of one population that can be played.

    Attributes:
        rows: In order of coming.
        holders: Ghosts with some weights, likewise.
    """

    rows: dict[PlayerId, GhostRow] = {}
    holders: dict[str, dict[PlayerId, None]] = {}

    def add(self, row: GhostRow) -> None:
        """Append a ghost, once or more often."""
        self.rows.setdefault(row.player, row)
        self.holders.setdefault(row.weights_digest, {})[row.player] = None

    def remove(self, row: GhostRow) -> None:
        """Take out a ghost, if it is there."""
        if self.rows.pop(row.player, None) is not None:
            del self.holders[row.weights_digest][row.player]

    def best(self, best_first: Iterable[str]) -> Iterator[PlayerId]:
        """Yield all ghosts, the best rated ones first, then the newest; some more than once.

        Args:
            best_first: Rated weights, the best first.
        """
        for weights in best_first:
            yield from self.holders.get(weights, ())
        yield from reversed(self.rows)


class StrengthIndex:
    """Policies and ghosts of all populations. Owned by the controller's thread."""

    def __init__(self, league: League) -> None:
        self._league = league
        self._kept: dict[str, _Kept] = {}
        self._ghosts: dict[str, _Ghosts] | None = None
        """Ghosts by population; None: to be made from the tables."""
        self._teams: dict[PlayerId, FrozenTeam] = {}
        """Teams of ghosts that were looked at: a fit changes none."""

    def apply(self, row: PolicyRow | GhostRow) -> None:
        """Take in a row that was put, once or more often."""
        if isinstance(row, PolicyRow):
            for kept in self._kept.values():
                # A policy is seated with its mates, so a change of one is a change of all.
                mates = self._league.teams.get(row.policy, (row.policy,))
                kept.changed.update((mate, None) for mate in mates if mate in kept.names)
        elif self._ghosts is None:
            return
        elif row.is_present:
            self._ghosts.setdefault(row.population, _Ghosts()).add(row)
        elif row.population in self._ghosts:
            self._ghosts[row.population].remove(row)
            # Its mates cannot be played either, whoever was looked at.
            self._kept, self._teams = {}, {}

    def forget_ratings(self) -> None:
        """Take in that ratings were fitted."""
        self._kept = {}

    def policies(self, population: str, ratings: Ratings) -> list[PlayerStrength]:
        """Return policies at their current checkpoints, in order of the tables.

        Args:
            population: Population whose players are asked for.
            ratings: Ratings of the population.
        """
        kept = self._current(population)
        for policy in kept.changed:
            row = self._league.tables.policies[policy]
            if is_whole(self._league, row):
                kept.policies[policy] = _policy(row, ratings, self._league)
            else:
                kept.policies.pop(policy, None)
        kept.changed.clear()
        found = kept.policies
        return [found[name] for name in kept.names if name in found]

    def ghosts(
        self, population: str, ratings: Ratings, *, rng: np.random.Generator | None
    ) -> Iterator[PlayerStrength]:
        """Yield ghosts worth a look: the best lower bounds, and some drawn evenly from all.

        Args:
            population: Population whose players are asked for.
            ratings: Ratings of the population.
            rng: Draws; None: none are drawn.
        """
        kept, league = self._current(population), self._league
        ghosts, origins = self._present_ghosts(population), ghosts_by_origin(league)
        for ghost in _worth_a_look(ghosts, ratings.best_first, rng):
            known = kept.ghosts.get(ghost.player)
            # A ghost's weights and rating stay until the next fit.
            if known is None:
                team = self._teams.get(ghost.player) or ghost_team(league, ghost, origins)
                # It cannot be played without its mates.
                if team is None:
                    continue
                self._teams[ghost.player] = team
                known = kept.ghosts[ghost.player] = _ghost(ghost, ratings, league, team=team)
            yield known

    def _current(self, population: str) -> _Kept:
        """Return what is kept of a population under its last ratings."""
        kept = self._kept.get(population)
        if kept is None:
            rows = self._league.tables.policies.values()
            names = dict.fromkeys(row.policy for row in rows if row.population == population)
            kept = self._kept[population] = _Kept(names, changed=dict.fromkeys(names))
        return kept

    def _present_ghosts(self, population: str) -> _Ghosts:
        """Return the ghosts that can be played."""
        if self._ghosts is None:
            self._ghosts = {}
            for row in self._league.tables.ghosts.values():
                if row.is_present:
                    self._ghosts.setdefault(row.population, _Ghosts()).add(row)
        return self._ghosts.get(population, _Ghosts())


def _policy(row: PolicyRow, ratings: Ratings, league: League) -> PlayerStrength:
    team = frozen_team(league, row)
    position = nearest_rated(ratings, league, Digest(team[row.population].entrant))
    kind = "retired" if row.state == "retired" else "policy"
    return player_strength(ratings, team, row.population, kind=kind, position=position)


def _ghost(row: GhostRow, ratings: Ratings, league: League, *, team: FrozenTeam) -> PlayerStrength:
    position = nearest_rated(ratings, league, row.weights_digest)
    policy = league.tables.policies.get(row.policy)
    # A ghost of before the first rated weights: those that came after it are the nearest.
    current = None if policy is None else league.weights(policy)
    if position is None and current is not None:
        position = nearest_rated(ratings, league, current)
    return player_strength(ratings, team, row.population, kind="ghost", position=position)


def player_strength(
    ratings: Ratings, team: FrozenTeam, population: str, *, kind: str, position: int | None
) -> PlayerStrength:
    """Return a player's strength: its own rating, else its line's with a wider interval.

    Args:
        ratings: Ratings of the population.
        team: The player and those who play beside it.
        population: Its population.
        kind: ``policy``, ``retired``, ``ghost`` or ``bot``.
        position: Place of the nearest rated weights in its line.
    """
    player, own_variance, rating = team[population], 0.0, 0.0
    if ratings.index(player.entrant) is None:
        # Only the model's prior is known without rated weights in its line.
        deviation = _MODEL.root_deviation
        if position is not None and ratings.row is not None:
            deviation = ratings.row.child_deviation
        own_variance = deviation**2
    if position is not None and ratings.row is not None:
        rating = ratings.row.ratings[position]
        # The factor is not known yet after a resume, so the whole variance is the player's own.
        if ratings.spread is None:
            own_variance += ratings.row.deviations[position] ** 2
    return PlayerStrength(
        player=player,
        team=team,
        entrant=player.entrant,
        population=population,
        kind=kind,
        rating=rating,
        position=position,
        own_variance=own_variance,
    )


def nearest_rated(ratings: Ratings, league: League, digest: Digest) -> int | None:
    """Return position of some weights in the ratings, else of their nearest rated ancestor.

    Weights that were evaluated after the last fit are passed over like those that never were.
    """
    if ratings.row is None:
        return None
    position = ratings.index(digest)
    if position is not None:
        return position
    for ancestor in league.ancestors(digest):
        position = ratings.index(ancestor)
        if position is not None:
            return position
    return None


def _worth_a_look(
    ghosts: _Ghosts, best_first: Iterable[str], rng: np.random.Generator | None
) -> list[GhostRow]:
    """Return the ghosts with the best lower bounds, and some drawn ones."""
    rows = list(ghosts.rows.values())
    # All are looked at if there are so few.
    if len(rows) <= MAX_BEST_GHOSTS + (0 if rng is None else MAX_DRAWN_GHOSTS):
        return rows
    found = dict[PlayerId, None]()
    for player in ghosts.best(best_first):
        found[player] = None
        if len(found) == MAX_BEST_GHOSTS:
            break
    if rng is not None:
        drawn = rng.permutation(len(rows))[:MAX_DRAWN_GHOSTS].tolist()
        found.update((rows[place].player, None) for place in drawn)
    return [ghosts.rows[player] for player in found]
