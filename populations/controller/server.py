"""The controller's I/O shell: sockets, files, processes, clocks around the state machine."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from arena.checkpoints.files import resolve_key, verify_directory
from arena.checkpoints.manifest import Manifest
from arena.checkpoints.publish import link_ghost, remove_directory
from arena.errors import ArenaError, CheckpointError
from arena.metrics.sink import Sink
from arena.types import LearnerId
from arena.wire.messages import (
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
from populations.controller.events import (
    AssignmentFailed,
    AssignmentFinished,
    CheckpointsRemoved,
    ControllerStarted,
    Event,
    GhostsLinked,
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
from populations.ratings.fit import Snapshot, fit_input, fit_ratings
from populations.storage.database import BACKUP
from populations.storage.journal import Journal
from populations.storage.recovery import sweep
from populations.storage.status import write_status
from populations.types import GhostRow, Json, Row

logger = logging.getLogger(__name__)

TICK_S = 0.1
BUSY_TICK_S = 0.005
STATUS_S = 1.0
BACKUP_S = 600.0


def utc_now() -> str:
    """The time for records, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Server:
    """Runs a controller until its run ends; all but the worker thread is in ``run``'s thread.

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
        self._host = socket.gethostname()
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="controller-worker")
        self._pending: list[Future[Event]] = []
        self._stop_reasons: list[str] = []
        self._live = LiveFigures()
        self._ended = False
        self._status_at_s = self._backup_at_s = -1e9

    def request_stop(self, reason: str) -> None:
        """Ask for a stop with everything saved. Safe to call from a signal handler."""
        self._stop_reasons.append(reason)

    def run(self) -> None:
        """Serve until the run ends.

        Raises:
            StorageError: If a commit fails; nothing was acknowledged, nothing is lost.
        """
        self._backup_at_s = self._clock()
        try:
            self._handle(ControllerStarted())
            while not self._ended:
                self._serve_once()
            self._launcher.close()
            self._worker.submit(self._back_up)
            self._worker.shutdown(wait=True)
            sweep(self._run_dir, self._state.tables)
            self._write_status()
        finally:
            self._worker.shutdown(wait=False, cancel_futures=True)

    def _serve_once(self) -> None:
        timeout_s = BUSY_TICK_S if self._pending else TICK_S
        for learner, message in self._transport.receive(timeout_s):
            self._receive(learner, message)
        for slot, code in self._launcher.exited():
            self._handle(LearnerExited(slot=slot, code=code))
        for future in [future for future in self._pending if future.done()]:
            self._pending.remove(future)
            self._handle(future.result())
        while self._stop_reasons:
            self._handle(StopRequested(reason=self._stop_reasons.pop(0)))
        self._handle(Ticked())
        now_s = self._clock()
        if now_s - self._status_at_s >= STATUS_S:
            self._write_status()
        if now_s - self._backup_at_s >= BACKUP_S:
            self._backup_at_s = now_s
            self._worker.submit(self._back_up)

    def _write_status(self) -> None:
        self._status_at_s = self._clock()
        document = self._live.document(
            self._state, now_s=self._status_at_s, endpoint=self._transport.endpoint
        )
        write_status(self._run_dir, document)
        self._on_status(document)
        for sink in self._sinks:
            sink.flush()

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
                self._pending.append(self._worker.submit(self._verify, learner, message))
            case Failed():
                self._handle(AssignmentFailed(learner=learner, failed=message))
            case Goodbye():
                self._handle(LearnerLeft(learner=learner, reason=message.reason))
            case _:
                logger.warning("learner %s sent a controller's message", learner)

    def _slot_of(self, hello: Hello) -> int | None:
        if hello.host != self._host:
            return None
        pids = {pid: slot for slot, pid in self._launcher.running().items()}
        return pids.get(hello.pid)

    def _handle(self, event: Event) -> None:
        """Let the state machine take an event in, commit, and only then act."""
        if self._ended:
            return
        now = Now(monotonic_s=self._clock(), utc=utc_now())
        tx = handle(self._state, event, now)
        if tx.rows:
            self._journal.commit(tx.rows)
            self._on_commit(tx.rows)
        self._live.note(self._state, now_s=now.monotonic_s)
        for command in tx.commands:
            self._carry_out(command)

    def _carry_out(self, command: Command) -> None:
        match command:
            case SendMessage():
                sent = self._transport.send(command.learner, command.message)
                if not sent and isinstance(command.message, Train | Evaluate):
                    self._pending.append(_done(LearnerUnreachable(learner=command.learner)))
            case StartLearner():
                self._launcher.start(command.slot, command.populations)
            case KillLearner():
                self._launcher.kill(command.slot)
            case ExploreHyperparameters():
                self._pending.append(self._worker.submit(answer, command))
            case FitRatings():
                self._pending.append(self._worker.submit(_fit, command.known))
            case LinkGhosts():
                # Before the messages that name them: commands are carried out in order.
                self._pending.append(_done(self._link(command.ghosts)))
            case RemoveCheckpoints():
                self._pending.append(self._worker.submit(self._remove, command.keys))
            case WriteMetrics():
                for sink in self._sinks:
                    sink.write(command.policy, command.agent_steps, command.metrics)
            case EndRun():
                self._ended = True

    def _verify(self, learner: LearnerId, finished: Finished) -> Event:
        """Read back what a learner published; what does not verify fails the assignment."""
        manifests: dict[str, Manifest] = {}
        try:
            for published in finished.checkpoints:
                key = published.checkpoint.key
                manifest = verify_directory(resolve_key(self._run_dir, key))
                if manifest.digest != published.checkpoint.digest:
                    raise CheckpointError(f"{key} has digest {manifest.digest}")
                manifests[key] = manifest
        except ArenaError as error:
            failed = Failed(
                assignment_id=finished.assignment_id,
                attempt=finished.attempt,
                kind="error",
                reason=f"its checkpoint does not verify: {error}",
            )
            return AssignmentFailed(learner=learner, failed=failed)
        return AssignmentFinished(learner=learner, finished=finished, manifests=manifests)

    def _back_up(self) -> None:
        try:
            self._journal.backup(self._run_dir / BACKUP)
        except StorageError as error:
            logger.error("the journal's backup failed: %s", error)

    def _link(self, ghosts: tuple[GhostRow, ...]) -> Event:
        linked = []
        for ghost in ghosts:
            try:
                link_ghost(self._run_dir, checkpoint_key=ghost.checkpoint, ghost_key=ghost.key)
                linked.append(ghost.player)
            except (CheckpointError, OSError) as error:
                logger.error("ghost %s could not be linked: %s", ghost.player, error)
        return GhostsLinked(players=tuple(linked))

    def _remove(self, keys: tuple[str, ...]) -> Event:
        removed = []
        for key in keys:
            try:
                remove_directory(self._run_dir, key)
                removed.append(key)
            except (CheckpointError, OSError) as error:
                logger.error("checkpoint %s could not be removed: %s", key, error)
        return CheckpointsRemoved(keys=tuple(removed))


def _fit(known: Snapshot) -> Event:
    fitted = fit_ratings(fit_input(known))
    return RatingsFitted(rows=fitted.rows, spreads=fitted.spreads)


def _done(event: Event) -> Future[Event]:
    future: Future[Event] = Future()
    future.set_result(event)
    return future
