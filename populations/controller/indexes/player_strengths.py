"""Strengths of players and their uncertainty, cached between decisions until they change.

They are not durable: a resumed controller computes them from the journal's rows and the last fit.

`PendingMatches` has the evaluation matches that this fit does not cover: open ones, or played
since. Evaluations take time, several may be open at once, and a fit takes seconds. If pending
matches did not count, each evaluation would repeat the matches of the one before. So their effect
is predicted: the variance v of a player against one with variance w is multiplied by
1 - v / (noise + v + w), where ``noise`` is the variance of the measured difference after so many
matches. After a resume ratings are fitted first.
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
"""Ghosts that are considered for an evaluation: the best rated ones, and some drawn uniformly."""

_MODEL = BradleyTerry()


class PlayerStrength(NamedTuple):
    """Player with its rating and the uncertainty of this rating.

    Attributes:
        player: Player with the frozen weights that would play.
        team: The player and its teammates in cooperation, by population.
        entrant: Name of the weights in results.
        population: Population of the player.
        kind: ``policy`` (ranked by PBT), ``ghost`` or ``bot``. Bots cannot become champion. Retired
            policies count as ghosts.
        rating: Rating (Elo) of the weights, or of the nearest rated weights in their line.
        position: Index of those rated weights in the population's ratings; None: there are none.
        own_variance: Variance (Elo squared) that the player does not share with those weights.
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
    """Cached strengths of one population's players under its last ratings.

    Attributes:
        names: All policies, in their order in the tables.
        changed: Policies whose strength must be computed again.
        policies: Strengths of policies that can be seated.
        ghosts: Strengths of ghosts that were computed since the last fit.
    """

    names: dict[PolicyId, None]
    changed: dict[PolicyId, None]
    policies: dict[PolicyId, PlayerStrength] = {}
    ghosts: dict[PlayerId, PlayerStrength] = {}


class _Ghosts(Struct):
    """Ghosts of one population that can be seated.

    Attributes:
        rows: Rows by id, in order of creation.
        holders: By digest of weights, the ghosts that have them, in the same order.
    """

    rows: dict[PlayerId, GhostRow] = {}
    holders: dict[str, dict[PlayerId, None]] = {}

    def add(self, row: GhostRow) -> None:
        """Append a ghost; repetitions do no harm."""
        self.rows.setdefault(row.player, row)
        self.holders.setdefault(row.weights_digest, {})[row.player] = None

    def remove(self, row: GhostRow) -> None:
        """Remove a ghost, if it is present."""
        if self.rows.pop(row.player, None) is not None:
            del self.holders[row.weights_digest][row.player]

    def best(self, best_first: Iterable[str]) -> Iterator[PlayerId]:
        """Yield rated ghosts, the best first, then all ghosts, the newest first.

        Args:
            best_first: Rated weights, the best first.
        """
        for weights in best_first:
            yield from self.holders.get(weights, ())
        yield from reversed(self.rows)


class StrengthIndex:
    """Strengths of policies and ghosts of all populations. Owned by the controller's thread."""

    def __init__(self, league: League) -> None:
        self._league = league
        self._kept: dict[str, _Kept] = {}
        self._ghosts: dict[str, _Ghosts] | None = None
        """Ghosts by population; None: not yet computed from the tables."""
        self._teams: dict[PlayerId, FrozenTeam] = {}
        """Teams of ghosts, cached beyond a fit, because no fit changes them."""

    def apply(self, row: PolicyRow | GhostRow) -> None:
        """Update the index by a row that was put; repetitions do no harm."""
        if isinstance(row, PolicyRow):
            for kept in self._kept.values():
                # A policy is seated with its teammates, so a change of one changes all of them.
                mates = self._league.teams.get(row.policy, (row.policy,))
                kept.changed.update((mate, None) for mate in mates if mate in kept.names)
        elif self._ghosts is None:
            return
        elif row.is_present:
            self._ghosts.setdefault(row.population, _Ghosts()).add(row)
        elif row.population in self._ghosts:
            self._ghosts[row.population].remove(row)
            # Ghosts of its teammates cannot be seated either, so cached teams are removed.
            self._kept, self._teams = {}, {}

    def forget_ratings(self) -> None:
        """Remove all cached strengths, because ratings were fitted."""
        self._kept = {}

    def policies(self, population: str, ratings: Ratings) -> list[PlayerStrength]:
        """Return policies at their current checkpoints, in order of the tables.

        Args:
            population: Population of the policies.
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
        """Yield ghosts for an evaluation: the best lower bounds, and some drawn uniformly from all.

        Args:
            population: Population of the ghosts.
            ratings: Ratings of the population.
            rng: Generator of the draw; None: no ghosts are drawn.
        """
        kept, league = self._current(population), self._league
        ghosts, origins = self._present_ghosts(population), ghosts_by_origin(league)
        for ghost in _worth_a_look(ghosts, ratings.best_first, rng):
            known = kept.ghosts.get(ghost.player)
            # A ghost's weights and rating do not change until the next fit, so they are cached.
            if known is None:
                team = self._teams.get(ghost.player) or ghost_team(league, ghost, origins)
                # A ghost whose teammates' ghosts were removed cannot be seated.
                if team is None:
                    continue
                self._teams[ghost.player] = team
                known = kept.ghosts[ghost.player] = _ghost(ghost, ratings, league, team=team)
            yield known

    def _current(self, population: str) -> _Kept:
        """Return a population's cached strengths; after a fit all policies count as changed."""
        kept = self._kept.get(population)
        if kept is None:
            rows = self._league.tables.policies.values()
            names = dict.fromkeys(row.policy for row in rows if row.population == population)
            kept = self._kept[population] = _Kept(names, changed=dict.fromkeys(names))
        return kept

    def _present_ghosts(self, population: str) -> _Ghosts:
        """Return the ghosts of a population that can be seated."""
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
    # A ghost older than the first rated weights has no rated ancestor, so the nearest rated weights
    # of its policy's present line are used.
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
        team: The player and its teammates, by population.
        population: Population of the player.
        kind: ``policy``, ``ghost`` or ``bot``.
        position: Index in the ratings of the nearest rated weights in its line; None: none.
    """
    player, own_variance, rating = team[population], 0.0, 0.0
    if ratings.index(player.entrant) is None:
        # Without rated weights in the line only the model's prior is known.
        deviation = _MODEL.root_deviation
        if position is not None and ratings.row is not None:
            deviation = ratings.row.child_deviation
        own_variance = deviation**2
    if position is not None and ratings.row is not None:
        rating = ratings.row.ratings[position]
        # After a resume the spread is not known until the first fit, so the whole variance counts
        # as the player's own.
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
    """Return the index in the ratings of weights or their nearest rated ancestor; None: no rated.

    Weights that were evaluated only after the last fit count as unrated.
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
    # If there are only few ghosts, all of them are returned.
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
"""Function that returns an entrant's rating (Elo) and variance (Elo squared) by the last fit."""

MAX_ANCESTORS = 32
"""Ancestors of weights that are searched for pending matches, which inform about their children."""

MAX_LINES = 4096
"""Weights whose lines are cached, because walking up a line is the slowest part of a query."""


class _Evaluation(Struct):
    """Pairs of players in one evaluation.

    Attributes:
        pairs: Number of matches of each pair.
        num_matches: Number of all matches, including those of players against themselves.
        sequence: Sequence of its last tally; infinity while it is open.
    """

    pairs: Mapping[tuple[Rated, Rated], int]
    num_matches: int
    sequence: float = math.inf


class PendingMatches(Struct, kw_only=True):
    """Pending matches, which ratings do not cover, and the variances that remain after them.

    Owned by one thread.

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
        """Update by the row of an assignment if it is an evaluation; repetitions do no harm.

        Args:
            row: Present row of the assignment.
            num_tallies: Sequence of the last tally, including those of this assignment.
            estimate: Function for an entrant's rating and variance by the last fit.
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
            # Evaluations are in the order of opening, because the predicted effect of each depends
            # on those before it.
            self._evaluations[row.assignment_id] = evaluation
            self._foresee(evaluation, estimate)
        elif row.status == "finished" and known is not None:
            # The row may be put again after later tallies, so the smallest sequence holds.
            known.sequence = min(known.sequence, num_tallies)
        elif row.status == "failed" and known is not None:
            # Predictions for later evaluations included this one's matches, so all are repeated.
            del self._evaluations[row.assignment_id]
            self._foresee_all(estimate)

    def cover(self, num_tallies: int, *, estimate: Estimate) -> None:
        """Remove evaluations that a new fit of ratings covers.

        Args:
            num_tallies: Sequence of the last tally that the fit covers.
            estimate: Function for an entrant's rating and variance by this fit.
        """
        self._evaluations = {
            key: evaluation
            for key, evaluation in self._evaluations.items()
            if evaluation.sequence > num_tallies
        }
        self._foresee_all(estimate)

    @property
    def open(self) -> dict[AssignmentId, int]:
        """Return the number of matches of each open evaluation."""
        return {
            assignment_id: evaluation.num_matches
            for assignment_id, evaluation in self._evaluations.items()
            if evaluation.sequence == math.inf
        }

    @property
    def num_open(self) -> int:
        """Return the number of matches in all open evaluations."""
        return sum(self.open.values())

    def open_matches(self) -> Counter[Rated]:
        """Return each player's number of matches with other players in open evaluations."""
        asked: Counter[Rated] = Counter()
        for evaluation in self._evaluations.values():
            if evaluation.sequence == math.inf:
                for pair, num_matches in evaluation.pairs.items():
                    for rated in pair:
                        asked[rated] += num_matches
        return asked

    def share_of(self, rated: Rated) -> float:
        """Return the share of an entrant's variance that remains after pending matches, in (0, 1].

        It is that of the newest weights in its line with pending matches, because the policy may
        have trained on since these were seated.
        """
        population, entrant = rated
        shares = self._remaining.get(population)
        if not shares:
            return 1.0
        # Newer weights have no entry, but their ancestors' matches inform about them, too. Lines
        # are cached, because this runs for each player of each evaluation.
        line = self._lines.get(entrant) or self._line(Digest(entrant))
        if shares.keys().isdisjoint(line):
            return 1.0
        return next(shares[digest] for digest in line if digest in shares)

    def _line(self, digest: Digest) -> tuple[Digest, ...]:
        """Return weights and up to `MAX_ANCESTORS` ancestors, nearest first."""
        origins = self.checkpoints.first("weights")
        line, made = [digest], origins.get(digest)
        while made is not None and made.parent is not None and len(line) <= MAX_ANCESTORS:
            line.append(made.parent)
            made = origins.get(made.parent)
        # A line that ends at an unknown origin is not cached, as the origin may become known later.
        if made is not None:
            if len(self._lines) >= MAX_LINES:
                self._lines.clear()
            self._lines[digest] = tuple(line)
        return tuple(line)

    def forget_lines(self) -> None:
        """Clear cached lines, because rows of checkpoints were removed from them."""
        self._lines.clear()

    def remaining(self, players: Iterable[PlayerStrength]) -> FloatArray:
        """Return the share of variance that remains for each player (`share_of`). float64 [N]."""
        return np.array([self.share_of((known.population, known.entrant)) for known in players])

    def _pairs(self, message: Evaluate) -> Mapping[tuple[Rated, Rated], int]:
        """Return the number of matches of each pair of rated players in an evaluation."""
        matches: Counter[tuple[Rated, Rated]] = Counter()
        for pairing in message.pairings:
            # The set removes a player's further seats, and sorting gives each pair one key.
            seated = sorted(
                {
                    (seat.population, player.entrant)
                    for seat, player in zip(self.seats, pairing.seating.players, strict=True)
                    if seat.population in self.ranked
                }
            )
            # Matches of a player against itself do not inform about its strength.
            if len(seated) == 2:
                matches[seated[0], seated[1]] += pairing.num_matches
        return matches

    def _foresee_all(self, estimate: Estimate) -> None:
        self._remaining.clear()
        for evaluation in self._evaluations.values():
            self._foresee(evaluation, estimate)

    def _foresee(self, evaluation: _Evaluation, estimate: Estimate) -> None:
        # Estimates are computed once per player, because walking up its line is slow and most
        # players are in several pairs.
        rated = {one for pair in evaluation.pairs for one in pair}
        known = {one: (*estimate(one), self.share_of(one)) for one in rated}
        for (one, other), num_matches in evaluation.pairs.items():
            rating, variance, share = known[one]
            other_rating, other_variance, other_share = known[other]
            # share <- share (1 - v / (noise + v + w)), where v and w remain after earlier matches.
            left, other_left = variance * share, other_variance * other_share
            noise = noise_of(rating - other_rating, num_matches=num_matches)
            total = noise + left + other_left
            known[one] = rating, variance, share * (1.0 - left / total)
            known[other] = other_rating, other_variance, other_share * (1.0 - other_left / total)
        for (population, entrant), (_, _, share) in known.items():
            self._remaining.setdefault(population, {})[entrant] = share
