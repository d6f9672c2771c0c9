"""Time that is named before matches begin: of the finals, or of an epoch that only evaluates."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Countdown:
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
