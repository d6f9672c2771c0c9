"""Fits of ratings: the running one, the last one, and when the next may begin.

A fit runs on a thread of its own (`populations.controller.rating_fit`). This state is not durable:
a resume repeats the last fit.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from arena.types import Digest, PolicyId
from populations.controller.indexes.player_strengths import nearest_rated
from populations.controller.rating_input import snapshot
from populations.controller.state.events import FitRatings
from populations.controller.state.transaction import Transaction
from populations.league.league import League
from populations.league.ratings import Ratings
from populations.ratings.bradley_terry import BradleyTerry
from populations.ratings.results import Rated
from populations.records.rows import PolicyRow

_MODEL = BradleyTerry()


PAUSE = 9.0
"""Pause after a fit, as a multiple of its duration, so that fits use at most 1/10 of a core."""


class FitPace(Struct):
    """Times of the last fit and of the next one, on the controller's clock, in seconds.

    Attributes:
        began_s: Time when the last fit was requested.
        due_s: Time from which on the next one may be requested.
    """

    began_s: float = 0.0
    due_s: float = float("-inf")

    def begin(self, now_s: float) -> None:
        """Record that a fit was requested."""
        self.began_s = now_s

    def end(self, now_s: float) -> None:
        """Record that the requested fit has ended."""
        self.due_s = now_s + PAUSE * (now_s - self.began_s)


class Fits(Struct):
    """State of the fits of a league's ratings in one epoch.

    Attributes:
        league: Players and results that are fitted; its tables have the rows of the last fit.
        running: Whether a fit runs now.
        contenders: By policy, weights among which the running fit chooses the best-rated; empty
            while none runs.
        pace: When ratings may be fitted again.
        covered: Sequence of the last evaluation tally that ratings cover.
        num_kept_evaluated: Number of evaluated weights after the last merge that could not remove
            as many as it should; 0 before.
        last: Ratings of the last fit, by population. Empty until the first of this epoch.
    """

    league: League
    running: bool = False
    contenders: Mapping[PolicyId, tuple[Rated, ...]] = {}
    pace: FitPace = field(default_factory=FitPace)
    covered: int = 0
    num_kept_evaluated: int = 0
    last: dict[str, Ratings] = {}
    _without_spread: dict[str, Ratings] = {}

    def are_stale(self) -> bool:
        """Return whether there are evaluation matches that the last fit does not cover."""
        return self.league.tables.last_evaluation_sequence > self.covered

    def is_due(self, now_s: float, *, at_once: bool) -> bool:
        """Return whether a fit is to begin now: matches are uncovered, and the pause is over.

        Args:
            now_s: Time on the controller's clock, in seconds.
            at_once: Whether the pause after a fit is skipped.
        """
        is_time = at_once or now_s >= self.pace.due_s
        return not self.running and is_time and self.are_stale()

    def refit(self, tx: Transaction, *, again: bool = False) -> None:
        """Request a fit of ratings if there are matches that the last fit does not cover.

        Args:
            tx: Transaction that takes the command.
            again: Whether to repeat the last fit otherwise, for its results that are not durable.
        """
        # Matches that arrive during a fit are covered by the next one.
        if self.running or not (again or self.are_stale()):
            return
        self.running = True
        self.pace.begin(tx.now.monotonic_s)
        # A repeated fit must give what the first one gave, so it rates the same entrants.
        rated = None if self.are_stale() else self.league.tables.ratings
        known = snapshot(self.league, rated=rated)
        self.contenders = known.contenders
        tx.commands.append(FitRatings(known=known))

    def end(self, ratings: Mapping[str, Ratings], now_s: float) -> None:
        """Record that the running fit has ended, with the ratings of each population."""
        self.running = False
        self.pace.end(now_s)
        self.contenders = {}
        self.last = dict(ratings)

    def ratings(self, population: str) -> Ratings:
        """Return a population's last ratings; after a resume without spread until the first fit."""
        row, known = self.league.tables.ratings.get(population), self.last.get(population)
        if known is not None and known.row is row:
            return known
        # A merge of results replaces the row, but the fit and its spread still hold.
        if known is not None and row is not None and known.fits(row):
            known = self.last[population] = Ratings(row, known.spread, known.centre)
            return known
        known = self._without_spread.get(population)
        if known is None or known.row is not row:
            known = self._without_spread[population] = Ratings(row)
        return known

    def estimate(self, rated: Rated) -> tuple[float, float]:
        """Return an entrant's rating (Elo) and its variance (Elo squared) by the last fit.

        For an unrated entrant they follow from its nearest rated ancestor.
        """
        population, entrant = rated
        ratings = self.ratings(population)
        position = nearest_rated(ratings, self.league, Digest(entrant))
        if position is None or ratings.row is None:
            return 0.0, _MODEL.root_deviation**2
        variance = ratings.row.deviations[position] ** 2
        if ratings.index(entrant) is None:
            # The variance of a child about its parent is added to the parent's variance.
            variance += ratings.row.child_deviation**2
        return ratings.row.ratings[position], variance

    def line_rating(self, policy: PolicyRow) -> float | None:
        """Return the rating (Elo) of the newest rated weights in a policy's line; None: none is."""
        ratings = self.ratings(policy.population)
        digest = self.league.weights(policy)
        if digest is None or ratings.row is None:
            return None
        position = nearest_rated(ratings, self.league, digest)
        return None if position is None else ratings.row.ratings[position]
