"""Times of the last evaluation matches: speeds change with policies.

Tests: `tests/populations/controller/state/test_match_times.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

KEPT = 0.5
"""Weight of what earlier evaluations took, for each one that ends."""

MIN_MATCH_S = 1e-9


@dataclass(slots=True)
class MatchTimes:
    """Matches of the last evaluations and their time, earlier ones counting less and less.

    Attributes:
        matches: Matches.
        seconds: Learner seconds that these took.
    """

    matches: float = 0.0
    seconds: float = 0.0

    def add(self, *, matches: int, duration_s: float) -> None:
        """Take in how long an evaluation took."""
        # n <- KEPT n + matches, and seconds alike: their quotient is the recent time of a match
        self.matches = KEPT * self.matches + matches
        self.seconds = KEPT * self.seconds + duration_s

    @property
    def match_s(self) -> float | None:
        """Return learner seconds of a match; None: not known."""
        # A stopwatch that shows 0 says nothing: by it, any number of matches would take no time.
        if self.matches <= 0.0 or self.seconds <= 0.0:
            return None
        return max(self.seconds / self.matches, MIN_MATCH_S)
