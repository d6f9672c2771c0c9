"""Clocks: the time that evaluation has, the pace of fits, and how long matches take.

Tests: `tests/populations/controller/state/test_goals.py`, `test_fit_pace.py` and
`test_match_times.py` beside it.
"""

from __future__ import annotations

from msgspec import Struct

PAUSE = 9.0
"""Pause after a fit, as a multiple of its duration: fits take a tenth of a core at most."""

KEPT = 0.5
"""Weight of what earlier evaluations took, for each one that ends."""

MIN_MATCH_S = 1e-9


class Countdown(Struct, kw_only=True):
    """Time for which a run is evaluated without training, PBT and new ghosts.

    Attributes:
        duration_s: Seconds from its beginning on.
        began_s: Time when it began; None: it has not.
        left_s: Seconds left; at most 0: no more evaluations are given out.
    """

    duration_s: float
    began_s: float | None = None
    left_s: float = 0.0

    def __post_init__(self) -> None:
        self.left_s = self.duration_s

    def advance(self, now_s: float, *, may_begin: bool) -> None:
        """Let time pass. None does until it may begin: processes take seconds to start."""
        if self.began_s is None and may_begin:
            self.began_s = now_s
        if self.began_s is not None:
            self.left_s = self.duration_s - (now_s - self.began_s)


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


class MatchTimes(Struct):
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
