"""Time of an epoch that evaluates a run and does nothing else (`arena evaluate --into`)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class EvaluationOnly:
    """Time for which a run is evaluated without training, PBT and new ghosts.

    Attributes:
        duration_s: Seconds from the first learner on.
        began_s: Time when the first learner was there; None: there has been none.
        left_s: Seconds left; at most 0: no more evaluations are given out.
    """

    duration_s: float
    began_s: float | None = None
    left_s: float = 0.0

    def __post_init__(self) -> None:
        self.left_s = self.duration_s

    def advance(self, now_s: float, *, has_learners: bool) -> None:
        """Let time pass. Until a learner is there none does: processes take seconds to start."""
        if self.began_s is None and has_learners:
            self.began_s = now_s
        if self.began_s is not None:
            self.left_s = self.duration_s - (now_s - self.began_s)
