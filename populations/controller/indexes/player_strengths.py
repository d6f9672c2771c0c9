"""How well each player is known, kept between decisions until something about it changes.

Not durable: it follows from the journal's rows and the last fit, and a resumed controller makes it
anew.

Beside it are the evaluation matches that this fit does not cover: asked for, or played since.
Evaluations last, several may be open at once, and a fit takes seconds. Without counting what is
under way, each evaluation would ask the questions of the one before it again. What such matches
will tell is foreseen: the variance of a player that meets another is multiplied by
1 - v / (noise + v + w), with v and w their variances and ``noise`` that of the difference as so
many matches tell it. After a resume ratings are fitted first.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from arena.types import AssignmentId, Digest, Entrant, Player, PlayerId, PolicyId, Seat
from arena.wire.messages import Evaluate
from populations.controller.indexes.teams import (
    FrozenTeam,
    frozen_team,
    ghost_team,
    ghosts_by_origin,
    is_whole,
)
from populations.league.league import League
from populations.league.ratings import Ratings
from populations.league.scheduling import FloatArray, noise_of
from populations.ratings.bradley_terry import BradleyTerry
from populations.ratings.results import Rated
from populations.records.rows import AssignmentRow, CheckpointRow, GhostRow, PolicyRow
from populations.records.tables import Table

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
        kind: Policies are ranked by PBT; they and ghosts may become champion. Those that left count
            as ghosts.
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
    kind = "policy" if row.state == "active" else "ghost"
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
        kind: ``policy``, ``ghost`` or ``bot``.
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


Estimate = Callable[[Rated], tuple[float, float]]
"""Rating and variance of an entrant after the last fit, in Elo and its square."""

MAX_ANCESTORS = 32
"""Checkpoints of a policy that are looked at for matches which its current weights profit from."""

MAX_LINES = 4096
"""Weights whose lines are remembered: walking up one takes longer than all else about it."""


class _Evaluation(Struct):
    """Pairs that meet in one evaluation.

    Attributes:
        pairs: Matches of each two players.
        num_matches: All matches, those of players against themselves included.
        sequence: Sequence of its last tally; infinity while it is open.
    """

    pairs: Mapping[tuple[Rated, Rated], int]
    num_matches: int
    sequence: float = math.inf


class PendingMatches(Struct, kw_only=True):
    """Variances that are left after matches which ratings do not cover. Owned by one thread.

    Attributes:
        seats: Seats of the environment.
        ranked: Populations whose policies are compared.
        checkpoints: All recorded checkpoints.
    """

    seats: tuple[Seat, ...]
    ranked: Collection[str]
    checkpoints: Table[str, CheckpointRow]
    _evaluations: dict[AssignmentId, _Evaluation] = {}
    _remaining: dict[str, dict[str, float]] = {}
    _lines: dict[str, tuple[Digest, ...]] = {}

    def apply(self, row: AssignmentRow, *, num_tallies: int, estimate: Estimate) -> None:
        """Take in an assignment that was put, once or more often; evaluations matter.

        Args:
            row: Assignment as it is now.
            num_tallies: Sequence of the last tally, the assignment's own included.
            estimate: Rating and variance of an entrant after the last fit.
        """
        message = row.message
        if not isinstance(message, Evaluate):
            return
        known = self._evaluations.get(row.assignment_id)
        if row.status == "queued" and known is None:
            evaluation = _Evaluation(
                pairs=self._pairs(message),
                num_matches=sum(pairing.num_matches for pairing in message.pairings),
            )
            # Evaluations are in the order of opening: each one is foreseen with what those before
            # it will tell.
            self._evaluations[row.assignment_id] = evaluation
            self._foresee(evaluation, estimate)
        elif row.status == "finished" and known is not None:
            # The row may be put again, when later tallies are in.
            known.sequence = min(known.sequence, num_tallies)
        elif row.status == "failed" and known is not None:
            # Later ones were foreseen with the matches of this one, so all are foreseen anew.
            del self._evaluations[row.assignment_id]
            self._foresee_all(estimate)

    def cover(self, num_tallies: int, *, estimate: Estimate) -> None:
        """Take in that ratings were fitted.

        Args:
            num_tallies: Sequence of the last tally that they cover.
            estimate: Rating and variance of an entrant after this fit.
        """
        self._evaluations = {
            key: evaluation
            for key, evaluation in self._evaluations.items()
            if evaluation.sequence > num_tallies
        }
        self._foresee_all(estimate)

    @property
    def open(self) -> dict[AssignmentId, int]:
        """Return matches of each evaluation that is open."""
        return {
            assignment_id: evaluation.num_matches
            for assignment_id, evaluation in self._evaluations.items()
            if evaluation.sequence == math.inf
        }

    @property
    def num_open(self) -> int:
        """Return matches of all evaluations that are open."""
        return sum(self.open.values())

    def open_matches(self) -> Counter[Rated]:
        """Return matches with another player that each player has in evaluations that are open."""
        asked: Counter[Rated] = Counter()
        for evaluation in self._evaluations.values():
            if evaluation.sequence == math.inf:
                for pair, num_matches in evaluation.pairs.items():
                    for rated in pair:
                        asked[rated] += num_matches
        return asked

    def share_of(self, rated: Rated) -> float:
        """Return share of an entrant's variance that is left, in (0, 1].

        Of the newest weights in its line that meet somebody: it may have trained on meanwhile.
        """
        population, entrant = rated
        shares = self._remaining.get(population)
        if not shares:
            return 1.0
        # Weights trained since have no entry of their own; their parents' matches tell about them,
        # too. This is asked for each player of each evaluation.
        line = self._lines.get(entrant) or self._line(Digest(entrant))
        if shares.keys().isdisjoint(line):
            return 1.0
        return next(shares[digest] for digest in line if digest in shares)

    def _line(self, digest: Digest) -> tuple[Digest, ...]:
        """Return some weights and those that they were trained from, nearest first."""
        origins = self.checkpoints.first("weights")
        line, made = [digest], origins.get(digest)
        while made is not None and made.parent is not None and len(line) <= MAX_ANCESTORS:
            line.append(made.parent)
            made = origins.get(made.parent)
        # A line that ends at an unknown origin is not kept, as its origin may still become known.
        if made is not None:
            if len(self._lines) >= MAX_LINES:
                self._lines.clear()
            self._lines[digest] = tuple(line)
        return tuple(line)

    def forget_lines(self) -> None:
        """Take in that checkpoints were removed: lines are others now, and reach further up."""
        self._lines.clear()

    def remaining(self, players: Iterable[PlayerStrength]) -> FloatArray:
        """Return the share that is left for each player. float64 [N]."""
        return np.array([self.share_of((known.population, known.entrant)) for known in players])

    def _pairs(self, message: Evaluate) -> Mapping[tuple[Rated, Rated], int]:
        """Return pairs of rated players that an evaluation seats, each with all its matches."""
        matches: Counter[tuple[Rated, Rated]] = Counter()
        for pairing in message.pairings:
            # A set, for a player may have several seats; sorted, so that a pair has one key.
            seated = sorted(
                {
                    (seat.population, player.entrant)
                    for seat, player in zip(self.seats, pairing.seating.players, strict=True)
                    if seat.population in self.ranked
                }
            )
            # A player against itself tells nothing of its strength.
            if len(seated) == 2:
                matches[seated[0], seated[1]] += pairing.num_matches
        return matches

    def _foresee_all(self, estimate: Estimate) -> None:
        self._remaining.clear()
        for evaluation in self._evaluations.values():
            self._foresee(evaluation, estimate)

    def _foresee(self, evaluation: _Evaluation, estimate: Estimate) -> None:
        # Most players meet several others, and a look along a line takes longer than all else.
        rated = {one for pair in evaluation.pairs for one in pair}
        known = {one: (*estimate(one), self.share_of(one)) for one in rated}
        for (one, other), num_matches in evaluation.pairs.items():
            rating, variance, share = known[one]
            other_rating, other_variance, other_share = known[other]
            # share <- share (1 - v / (noise + v + w)), with v and w as left by earlier matches
            left, other_left = variance * share, other_variance * other_share
            noise = noise_of(rating - other_rating, num_matches=num_matches)
            total = noise + left + other_left
            known[one] = rating, variance, share * (1.0 - left / total)
            known[other] = other_rating, other_variance, other_share * (1.0 - other_left / total)
        for (population, entrant), (_, _, share) in known.items():
            self._remaining.setdefault(population, {})[entrant] = share
