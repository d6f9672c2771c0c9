"""Live status of a run for `status.json`: what each learner does now, and how fast."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from statistics import median_high
from typing import TYPE_CHECKING

from arena.processes.guard import command_pid
from arena.types import LearnerId
from populations.controller.evaluation import share
from populations.controller.indexes.alert_kinds import document
from populations.controller.state.epoch import Measured
from populations.controller.state.leases import Pause
from populations.records.rows import Json
from populations.storage.status import committed

if TYPE_CHECKING:
    from populations.controller.state.leases import Learner
    from populations.controller.state.state import ControllerState

WINDOW_S = 30.0
SAMPLE_S = 0.5
STRAGGLER_SHARE = 0.25

STORAGE = "storage_full"
STALLED = "stalled"
STALLED_ADVICE = (
    "No policy is changed by it, and the run goes on by itself as soon as anything finishes; after "
    "some tries it ends, and can be resumed once the reason is gone."
)
STORAGE_ADVICE = (
    "Make room, or the disk writable: the run goes on by itself. A resume with less "
    "journal.keep_detail_hours, metrics.keep_mb, checkpoints.keep and ghosts.keep needs less."
)


def stragglers(learners: Mapping[LearnerId, Learner]) -> frozenset[LearnerId]:
    """Return the learners that work at less than a quarter of the run's usual speed.

    This is only shown to users. No decision uses it, because PBT compares policies at equal steps.
    """
    rates = {name: one.rate for name, one in learners.items() if one.held and one.rate > 0.0}
    # A single learner cannot be compared with others.
    if len(rates) < 2:
        return frozenset()
    # Of two learners the faster one's rate counts as usual, so that the slower can be a straggler.
    usual = median_high(rates.values())
    return frozenset(name for name, rate in rates.items() if rate < STRAGGLER_SHARE * usual)


class LiveFigures:
    """Speed of the run over the last ``WINDOW_S``; neither durable nor used for decisions."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def record(self, state: ControllerState, *, now_s: float) -> None:
        """Take a sample of the run's agent steps, those of running assignments included."""
        if self._samples and now_s - self._samples[-1][0] < SAMPLE_S:
            return
        running = sum(learner.agent_steps for learner in state.crew.learners.values())
        self._samples.append((now_s, state.tables.run.agent_steps + running))
        while now_s - self._samples[0][0] > WINDOW_S:
            self._samples.popleft()

    @property
    def agent_steps_per_s(self) -> float:
        """Return agent steps per second over the last 30 s, or the time since the first sample."""
        if len(self._samples) < 2:
            return 0.0
        (first_s, first), (last_s, last) = self._samples[0], self._samples[-1]
        # The count may fall, because steps of an assignment count while it runs, even if it is lost
        # later.
        return max(last - first, 0) / (last_s - first_s)

    def document(
        self,
        state: ControllerState,
        *,
        now_s: float,
        endpoint: str,
        store_endpoint: str | None = None,
    ) -> dict[str, Json]:
        """Return the content of `status.json`."""
        slow = stragglers(state.crew.learners)
        learners: list[Json] = [
            {
                "learner": learner_id,
                "pid": learner.hello.pid,
                "slot": learner.slot,
                "state": "working" if learner.held else "idle",
                "assignment": learner.held[0].assignment_id if learner.held else None,
                "progress": learner.progress,
                "agent_steps": learner.agent_steps,
                "agent_steps_per_s": round(learner.rate, 1) if learner.held else 0.0,
                "speeds": {name: round(speed, 1) for name, speed in learner.speeds.items()},
                "match_s": learner.match_times.match_s,
                "straggler": learner_id in slow,
                "rss_bytes": learner.rss_bytes,
                "silent_s": round(now_s - learner.last_heard_s, 2),
            }
            for learner_id, learner in state.crew.learners.items()
        ]
        return {
            "run": state.tables.run.run,
            "pid": command_pid(),
            "epoch": state.tables.run.epoch,
            "endpoint": endpoint,
            "store_endpoint": store_endpoint,
            "phase": state.phase.name,
            "elapsed_s": round(state.phase.elapsed_before_s + now_s - state.phase.started_s, 2),
            # These counts are of committed rows, so a later journal with fewer shows a loss of work
            # (`storage.loss`).
            **committed(state.tables),
            "alerts": alerts(state.blame.pause, state.measured, now_s=now_s),
            "evaluation": share.document(state.measured),
            "agent_steps_per_s": round(self.agent_steps_per_s, 1),
            "learners_waiting": sum(slot.is_waiting for slot in state.crew.slots),
            "learners": learners,
        }


def alerts(pause: Pause | None, measured: Measured, *, now_s: float) -> list[Json]:
    """Return the active alerts, beginning with that of a pause, if there is one."""
    raised = measured.alerts.documents()
    if pause is None:
        return raised
    when = f"in {max(pause.retry_at_s - now_s, 0.0):.0f} s" if not pause.is_trying else "now"
    paused = f"nothing is given out since {now_s - pause.since_s:.0f} s"
    what = f"{pause.reason}; {paused}, the next try is {when}"
    return [paused_alert(what, is_storage=pause.is_storage), *raised]


def paused_alert(what: str, *, is_storage: bool) -> Json:
    """Return the alert of a paused run, whose disk refuses or in which nothing finishes."""
    if is_storage:
        return document(STORAGE, "", what, advice=STORAGE_ADVICE)
    return document(STALLED, "", what, advice=STALLED_ADVICE)
