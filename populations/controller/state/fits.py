"""Fits of ratings: the one that is being made, the last one, and when the next may begin.

A fit is made on a thread of its own (`populations.controller.rating_fit`). Not durable: a resume
repeats the last one.
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
"""Pause after a fit, as a multiple of its duration: fits take a tenth of a core at most."""


class FitPace(Struct):
    """Times of the last fit and of the next one, on the controller's clock, in seconds.

    Attributes:
        began_s: Time when the last fit was asked for.
        due_s: Time from which the next one may be asked for.
    """

    began_s: float = 0.0
    due_s: float = float("-inf")

    def begin(self, now_s: float) -> None:
        """Record that a fit was asked for."""
        self.began_s = now_s

    def end(self, now_s: float) -> None:
        """Record that it has come."""
        self.due_s = now_s + PAUSE * (now_s - self.began_s)


class Fits(Struct):
    """Fits of a league's ratings. From its beginning to its end an epoch has one.

    Attributes:
        league: Players and results that are fitted; its tables have the rows of the last fit.
        running: Whether a fit runs now.
        contenders: By policy, weights among which the running fit chooses the best-rated; empty:
            none runs.
        pace: When ratings may be fitted again.
        covered: Sequence of the last evaluation tally that ratings cover.
        num_kept_evaluated: Evaluated weights when fewer could be merged than should; 0 before.
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
        """Return whether evaluation matches came in since the last fit."""
        return self.league.tables.last_evaluation_sequence > self.covered

    def is_due(self, now_s: float, *, at_once: bool) -> bool:
        """Return whether evaluation matches are to be fitted now.

        Args:
            now_s: Time on the controller's clock, in seconds.
            at_once: Whether the pause after a fit is left out.
        """
        is_time = at_once or now_s >= self.pace.due_s
        return not self.running and is_time and self.are_stale()

    def refit(self, tx: Transaction, *, again: bool = False) -> None:
        """Have ratings fitted if evaluation matches came in since the last fit.

        Args:
            tx: Takes the command.
            again: Whether to repeat the last fit if none came in: for what is not durable of it.
        """
        # Matches that come in during a fit are fitted after it (`end`).
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
        """Take in that the running fit has ended, with the ratings of each population."""
        self.running = False
        self.pace.end(now_s)
        self.contenders = {}
        self.last = dict(ratings)

    def ratings(self, population: str) -> Ratings:
        """Return a population's last ratings, with what is known of differences."""
        row, known = self.league.tables.ratings.get(population), self.last.get(population)
        if known is not None and known.row is row:
            return known
        # The same fit: a merge of results changes how many records there are, and nothing else.
        if known is not None and row is not None and known.fits(row):
            known = self.last[population] = Ratings(row, known.spread, known.centre)
            return known
        # After a resume only the row is known, until the first fit.
        known = self._without_spread.get(population)
        if known is None or known.row is not row:
            known = self._without_spread[population] = Ratings(row)
        return known

    def estimate(self, rated: Rated) -> tuple[float, float]:
        """Return rating and variance of an entrant by the last fit, in Elo and its square: its own,
        else those of its line.
        """
        population, entrant = rated
        ratings = self.ratings(population)
        position = nearest_rated(ratings, self.league, Digest(entrant))
        if position is None or ratings.row is None:
            return 0.0, _MODEL.root_deviation**2
        variance = ratings.row.deviations[position] ** 2
        if ratings.index(entrant) is None:
            # Elo squared: the parent's variance, and that of a child about its parent.
            variance += ratings.row.child_deviation**2
        return ratings.row.ratings[position], variance

    def line_rating(self, policy: PolicyRow) -> float | None:
        """Return Elo of the newest rated weights in a policy's line; None if none are rated."""
        ratings = self.ratings(policy.population)
        digest = self.league.weights(policy)
        if digest is None or ratings.row is None:
            return None
        position = nearest_rated(ratings, self.league, digest)
        return None if position is None else ratings.row.ratings[position]
