"""How far an epoch is: it trains, is evaluated, stops and is over; and why."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from arena.wire.messages import Stop
from populations.controller.state.clocks import Countdown
from populations.controller.state.events import Now
from populations.controller.state.leases import Crew
from populations.controller.state.transaction import Transaction
from populations.records.rows import AssignmentRow, RunRow

PhaseName = Literal["training", "evaluating", "stopping", "over"]


class Phase(Struct, kw_only=True):
    """Phase of an epoch and its times, from its beginning to its end.

    Attributes:
        crew: Learners, who are told of the end.
        name: ``training``; ``evaluating`` (nothing is trained any more, final matches are
            played); ``stopping`` (nothing new is given out); ``over``.
        reason: Why the phase is not ``training``.
        evaluation_only: Time left of an epoch that only evaluates; None: it trains.
        finals: Time left of the final matches; None: training goes on, or seconds decide nothing.
        interrupted: Whether somebody asked for the stop, so that the run can be resumed.
        failed: Whether the run cannot go on.
        stopping_s: When learners were told to stop.
        started_s: When this epoch began, on the controller's clock.
        elapsed_before_s: Seconds of the run before this epoch.
        last_event_s: When the controller last took an event in.
        share_reached: Evaluation's share when training ended; None before.
    """

    crew: Crew
    name: PhaseName = "training"
    reason: str = ""
    evaluation_only: Countdown | None = None
    finals: Countdown | None = None
    interrupted: bool = False
    failed: bool = False
    stopping_s: float = 0.0
    started_s: float = 0.0
    elapsed_before_s: float = 0.0
    last_event_s: float = 0.0
    share_reached: float | None = None

    @property
    def countdown(self) -> Countdown | None:
        """Return the time that evaluation has when nothing is trained; None: no time is named."""
        return self.finals if self.evaluation_only is None else self.evaluation_only

    def elapsed_s(self, now: Now) -> float:
        """Return the seconds of the run, over all epochs."""
        return self.elapsed_before_s + now.monotonic_s - self.started_s

    def trained_s(self, now: Now, run: RunRow) -> float:
        """Return the seconds in which the run trained, over all epochs, while it trains."""
        return self.elapsed_s(now) - run.closing_s

    def is_for_now(self, row: AssignmentRow) -> bool:
        """Return whether an open assignment is done in this epoch; only evaluations may be."""
        return self.evaluation_only is None or row.kind == "evaluate"

    def stop(self, tx: Transaction, *, reason: str, interrupted: bool) -> None:
        """Give out nothing more and let learners publish what they have."""
        # The first reason stays.
        if self.name in ("stopping", "over"):
            return
        self.name = "stopping"
        self.reason = reason
        self.interrupted = interrupted
        # Learners have their grace from here on.
        self.stopping_s = tx.now.monotonic_s
        for learner_id in self.crew.learners:
            tx.send(learner_id, Stop(grace_s=self.crew.patience.grace_s))

    def fail(self, tx: Transaction, *, reason: str) -> None:
        """End the run: it cannot go on."""
        if self.name == "over":
            return
        self.stop(tx, reason=reason, interrupted=False)
        # Of several failures the first is the reason; a stop that was asked for before is none.
        if not self.failed:
            self.reason, self.interrupted, self.failed = reason, False, True
