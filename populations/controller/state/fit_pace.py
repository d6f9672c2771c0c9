"""Pace of fits: they take a bounded share of a core, however long a league has played.

Tests: `tests/populations/controller/state/test_fit_pace.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

PAUSE = 9.0
"""Pause after a fit, as a multiple of its duration: fits take a tenth of a core at most."""


@dataclass(slots=True)
class FitPace:
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
