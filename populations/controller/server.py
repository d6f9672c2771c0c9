"""The controller's I/O shell: sockets, files, processes, clocks around the state machine."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from arena.failpoints import failpoint
from arena.metrics.sink import Sink
from arena.types import AssignmentId, LearnerId
from arena.wire.messages import (
    Acknowledge,
    Evaluate,
    Failed,
    Finished,
    Goodbye,
    Heartbeat,
    Hello,
    Message,
    Train,
)
from arena.wire.transport import ControllerTransport
from populations.controller.commands import (
    Command,
    EndRun,
    ExploreHyperparameters,
    FitRatings,
    KillLearner,
    LinkGhosts,
    RemoveCheckpoints,
    SendMessage,
    StartLearner,
    WriteMetrics,
)
from populations.controller.committing import commit_patiently
from populations.controller.directories import link, remove, verify
from populations.controller.events import (
    AssignmentFailed,
    AssignmentFinished,
    ControllerStarted,
    Event,
    HeartbeatReceived,
    LearnerExited,
    LearnerJoined,
    LearnerLeft,
    LearnerUnreachable,
    Now,
    RatingsFitted,
    StopRequested,
    StrangerSpoke,
    Ticked,
)
from populations.controller.exploring import answer
from populations.controller.live import LiveFigures
from populations.controller.machine import handle
from populations.controller.state import ControllerState
from populations.core import Launcher
from populations.errors import StorageError
from populations.league.scheduling import import_slow_modules
from populations.ratings.fit import Snapshot, fit_input, fit_ratings
from populations.storage.database import BACKUP, storage_errors
from populations.storage.journal import Journal
from populations.storage.recovery import sweep
from populations.storage.status import write_status
from populations.types import Json, Row

logger = logging.getLogger(__name__)

TICK_S = 0.1
BUSY_TICK_S = 0.005
MAX_ANSWERS = 64
"""That are handled before learners are heard again."""

STATUS_S = 1.0
BACKUP_S = 600.0


def utc_now() -> str:
    """The time for records, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Server:
    """Runs a controller until its run ends; all but two worker threads is in ``run``'s thread.

    Owns the journal's only writing connection, the transport, the launcher and the sinks while it
    runs; closes none of them but the launcher.
    """

    def __init__(
        self,
        *,
        run_dir: Path,
        state: ControllerState,
        journal: Journal,
        transport: ControllerTransport,
        launcher: Launcher,
        sinks: Sequence[Sink] = (),
        on_commit: Callable[[Sequence[Row]], None] = lambda rows: None,
        on_status: Callable[[Mapping[str, Json]], None] = lambda document: None,
        clock: Callable[[], float] = time.monotonic,
        utc: Callable[[], str] = utc_now,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._run_dir = run_dir
        self._state = state
        self._journal = journal
        self._transport = transport
        self._launcher = launcher
        self._sinks = sinks
        self._on_commit = on_commit
        self._on_status = on_status
        self._clock = clock
        self._utc = utc
        self._wait = wait
        self._host = socket.gethostname()
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="controller-worker")
        # Results do not wait for a fit of ratings, which may take seconds.
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="controller-reader")
        self._pending: list[Future[Event]] = []
        self._reading: set[tuple[LearnerId, AssignmentId, int]] = set()
        """Results that were heard and not handled yet; learners say them again meanwhile."""
        self._stop_reasons: list[str] = []
        self._live = LiveFigures()
        self._status: Mapping[str, Json] = {}
        self._ended = False
        self._status_at_s = self._backup_at_s = self._ticked_at_s = -1e9

    def request_stop(self, reason: str) -> None:
        """Ask for a stop with everything saved. Safe to call from a signal handler."""
        self._stop_reasons.append(reason)

    def run(self) -> None:
        """Serve until the run ends.

        Raises:
            StorageError: If a commit fails, for some time where that may pass, or the run's
                directory is gone; what was not committed was not acknowledged: nothing is lost.
        """
        self._backup_at_s = self._clock()
        self._worker.submit(import_slow_modules)
        try:
            self._handle(ControllerStarted())
            while not self._ended:
                self._serve_once()
            failpoint("controller.ended")
            self._launcher.close()
            failpoint("controller.before_backup")
            self._worker.submit(self._back_up)
            self._worker.shutdown(wait=True)
            self._reader.shutdown(wait=True)
            failpoint("controller.before_sweep")
            sweep(self._run_dir, self._state.tables)
            self._write_status()
        finally:
            self._worker.shutdown(wait=False, cancel_futures=True)
            self._reader.shutdown(wait=False, cancel_futures=True)

    def _serve_once(self) -> None:
        timeout_s = BUSY_TICK_S if self._pending else TICK_S
        received = self._transport.receive(timeout_s)
        heard_s = self._clock()
        for learner, message in received:
            self._receive(learner, message)
        # It looks at everybody, so where there is always something to hear, not every time.
        if not received or self._clock() - self._ticked_at_s >= TICK_S:
            self._ticked_at_s = self._clock()
            self._handle(Ticked(deaf_s=self._ticked_at_s - heard_s))
        for slot, code in self._launcher.exited():
            self._handle(LearnerExited(slot=slot, code=code))
        for future in self._take_done():
            event = future.result()
            match event:
                case AssignmentFinished(learner=learner, finished=result):
                    self._reading.discard((learner, result.assignment_id, result.attempt))
                case AssignmentFailed(learner=learner, failed=fault):
                    self._reading.discard((learner, fault.assignment_id, fault.attempt))
            self._handle(event)
        while self._stop_reasons:
            self._handle(StopRequested(reason=self._stop_reasons.pop(0)))
        now_s = self._clock()
        if now_s - self._status_at_s >= STATUS_S:
            self._write_status()
        if now_s - self._backup_at_s >= BACKUP_S:
            self._backup_at_s = now_s
            self._worker.submit(self._back_up)

    def _take_done(self) -> list[Future[Event]]:
        """Answers that are there, in order of asking; not too many: learners are to be heard."""
        done = [future for future in self._pending if future.done()][:MAX_ANSWERS]
        taken = set(done)
        self._pending = [future for future in self._pending if future not in taken]
        return done

    def _write_status(self) -> None:
        self._journal.require_place()
        self._status_at_s = self._clock()
        document = self._live.document(
            self._state, now_s=self._status_at_s, endpoint=self._transport.endpoint
        )
        document["bad_messages"] = dict(self._transport.num_bad)
        self._status = document
        self._show_status(document)
        self._tell_sinks(lambda sink: sink.flush())

    def _show_status(self, document: Mapping[str, Json]) -> None:
        """Nothing depends on it: a disk that refuses it ends no run."""
        try:
            write_status(self._run_dir, document)
        except StorageError as error:
            logger.warning("the live figures could not be written: %s", error)
        self._on_status(document)

    def _tell_sinks(self, tell: Callable[[Sink], None]) -> None:
        for sink in self._sinks:
            try:
                tell(sink)
            except OSError as error:
                logger.error("metrics could not be written: %s", error)

    def _commit(self, rows: Sequence[Row]) -> None:
        def alert(reason: str) -> None:
            # The figures of before: what is in memory now is not committed.
            text = f"storage: {reason}; nothing is acknowledged until the journal has room"
            self._show_status({**self._status, "alerts": [text]})

        commit_patiently(
            self._journal,
            rows,
            should_end=lambda: bool(self._stop_reasons),
            tell=alert,
            clock=self._clock,
            wait=self._wait,
        )

    def _receive(self, learner: LearnerId, message: Message) -> None:
        known = learner in self._state.learners
        match message:
            case Hello():
                slot = self._slot_of(message)
                self._handle(LearnerJoined(learner=learner, hello=message, slot=slot))
            case _ if not known:
                self._handle(StrangerSpoke(learner=learner))
            case Heartbeat():
                self._handle(HeartbeatReceived(learner=learner, heartbeat=message))
            case Finished():
                self._read_back(learner, message)
            case Failed():
                self._handle(AssignmentFailed(learner=learner, failed=message))
            case Goodbye():
                self._handle(LearnerLeft(learner=learner, reason=message.reason))
            case _:
                logger.warning("learner %s sent a controller's message", learner)

    def _read_back(self, learner: LearnerId, message: Finished) -> None:
        """Have a result verified, once, if its learner was given that; otherwise answer at once.

        So nobody can queue more work than it was given.
        """
        assignment_id, attempt = message.assignment_id, message.attempt
        if not self._state.learners[learner].has(assignment_id, attempt=attempt):
            self._handle(AssignmentFinished(learner=learner, finished=message, manifests={}))
        elif (lease := (learner, assignment_id, attempt)) not in self._reading:
            self._reading.add(lease)
            self._pending.append(self._reader.submit(verify, self._run_dir, learner, message))

    def _slot_of(self, hello: Hello) -> int | None:
        if hello.host != self._host:
            return None
        pids = {pid: slot for slot, pid in self._launcher.running().items()}
        return pids.get(hello.pid)

    def _handle(self, event: Event) -> None:
        """Let the state machine take an event in, commit, and only then act."""
        if self._ended:
            return
        failpoint("controller.told")
        now = Now(monotonic_s=self._clock(), utc=self._utc())
        tx = handle(self._state, event, now)
        if tx.rows:
            failpoint("controller.before_commit")
            self._commit(tx.rows)
            failpoint("controller.committed")
            self._on_commit(tx.rows)
        self._live.note(self._state, now_s=now.monotonic_s)
        for command in tx.commands:
            self._carry_out(command)
            failpoint("controller.carried_out")

    def _carry_out(self, command: Command) -> None:
        match command:
            case SendMessage():
                self._send(command)
            case StartLearner():
                failpoint("controller.before_start")
                with storage_errors(self._run_dir):
                    self._launcher.start(command.slot, command.populations)
                failpoint("controller.started")
            case KillLearner():
                self._launcher.kill(command.slot, dump_stacks=command.dump_stacks)
            case ExploreHyperparameters():
                self._pending.append(self._worker.submit(answer, command))
            case FitRatings():
                self._pending.append(self._worker.submit(_fit, command.known))
            case LinkGhosts():
                # Before the messages that name them: commands are carried out in order.
                failpoint("controller.before_link")
                self._pending.append(_done(link(self._run_dir, command.ghosts)))
                failpoint("controller.linked")
            case RemoveCheckpoints():
                self._pending.append(self._reader.submit(remove, self._run_dir, command.keys))
            case WriteMetrics():
                policy, steps, metrics = command.policy, command.agent_steps, command.metrics
                self._tell_sinks(lambda sink: sink.write(policy, steps, metrics))
            case EndRun():
                self._ended = True

    def _send(self, command: SendMessage) -> None:
        is_assignment = isinstance(command.message, Train | Evaluate)
        is_answer = isinstance(command.message, Acknowledge)
        if is_answer:
            failpoint("controller.before_acknowledge")
        sent = self._transport.send(command.learner, command.message)
        if is_answer:
            failpoint("controller.acknowledged")
        elif is_assignment:
            failpoint("controller.assigned")
        if is_assignment and not sent:
            self._pending.append(_done(LearnerUnreachable(learner=command.learner)))

    def _back_up(self) -> None:
        try:
            self._journal.backup(self._run_dir / BACKUP)
        except StorageError as error:
            logger.error("the journal's backup failed: %s", error)


def _fit(known: Snapshot) -> Event:
    fitted = fit_ratings(fit_input(known))
    return RatingsFitted(rows=fitted.rows, spreads=fitted.spreads)


def _done(event: Event) -> Future[Event]:
    future: Future[Event] = Future()
    future.set_result(event)
    return future
