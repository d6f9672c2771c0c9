"""Server of the controller: sockets, files, processes and clocks around the state machine.

Events of learners and of the worker threads wait for the state machine in the `Inbox`.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from arena.failpoints import failpoint
from arena.transfer.terms import Grant
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
from populations.controller.assignments.validation import Leases, open_grants, open_leases
from populations.controller.evolution.exploring import answer
from populations.controller.indexes.alert_kinds import document
from populations.controller.machine import handle
from populations.controller.monitoring.sinks import Sinks
from populations.controller.rating_fit import fit_ratings
from populations.controller.rating_input import Snapshot, fit_input
from populations.controller.server.checkpoint_tasks import link, read_back, remove, verify
from populations.controller.server.journal_upkeep import (
    JournalUpkeep,
    check_commands,
    commit_patiently,
    one_thread,
)
from populations.controller.server.live_status import STORAGE_ADVICE, LiveFigures
from populations.controller.state import events
from populations.controller.state.events import (
    AssignmentFailed,
    AssignmentFinished,
    Command,
    Event,
    LearnerEvent,
    Now,
    SendMessage,
)
from populations.controller.state.state import ControllerState
from populations.core import Launcher
from populations.errors import StorageError
from populations.hooks.supervisor import HookProcess
from populations.league.scheduling import import_slow_modules
from populations.records.aggregates import Row
from populations.records.rows import Json
from populations.storage.database import storage_errors
from populations.storage.journal import Journal
from populations.storage.recovery import sweep
from populations.storage.status import write_status

logger = logging.getLogger(__name__)

TICK_S = 0.1
# The wait is shorter while a worker thread works, because its answer does not wake the socket.
BUSY_TICK_S = 0.005
MAX_HEARING_S = 0.1
MAX_WORK_S = 0.1
"""Seconds for which one turn of the loop reads messages, and for which it then handles events."""

MAX_COMMIT_S = 0.02
"""Seconds for which events are collected before they are committed together and answered."""

STATUS_S = 1.0


def utc_now() -> str:
    """Return the present time for records, in ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Store(Protocol):
    """Process that serves checkpoints to learners without access to the run's directory."""

    @property
    def endpoint(self) -> str:
        """Return the address that it listens on."""

    def grant(self, grants: Mapping[str, tuple[Grant, ...]]) -> None:
        """Set the checkpoints, by the name of a learner's key, that learners may upload."""


class Server:
    """Loop of a controller until its run ends.

    Everything runs in the thread that calls ``run``, except the work of four threads (worker, fits,
    reader, journal). While it runs, it owns the journal's only writing connection, the transport,
    the launcher, the sinks and the hooks; of these it closes launcher and hooks.
    """

    def __init__(
        self,
        *,
        run_dir: Path,
        state: ControllerState,
        journal: Journal,
        transport: ControllerTransport,
        launcher: Launcher,
        store: Store | None = None,
        sinks: Sinks | None = None,
        hooks: Sequence[HookProcess] = (),
        on_commit: Callable[[Sequence[Row]], None] = lambda rows: None,
        on_status: Callable[[Mapping[str, Json]], None] = lambda document: None,
        on_wait: Callable[[str, float], None] = lambda name, most_s: None,
        clock: Callable[[], float] = time.monotonic,
        utc: Callable[[], str] = utc_now,
        wait: Callable[[float], None] = time.sleep,
        worker: Callable[[str], Executor] = one_thread,
    ) -> None:
        self._run_dir = run_dir
        self._state = state
        self._journal = journal
        self._transport = transport
        self._launcher = launcher
        self._store = store
        self._leases: Leases = ()
        self._sinks = sinks or Sinks({})
        self._hooks = hooks
        self._on_commit = on_commit
        self._on_status = on_status
        self._on_wait = on_wait
        self._clock = clock
        self._utc = utc
        self._wait = wait
        self._worker = worker("controller-worker")
        # Fits have a thread of their own so that explorations do not wait for them. In
        # deterministic mode both share one thread, so that their order is fixed.
        self._fitter = (
            self._worker if state.settings.config.deterministic else worker("controller-fits")
        )
        # Results are verified on another thread, as they must not wait for a fit of some seconds.
        self._reader = worker("controller-reader")
        self._upkeep = JournalUpkeep(
            run_dir, journal, state.settings.config.journal, clock=clock, worker=worker
        )
        self._inbox = Inbox()
        """Events that wait to be handled: of learners, and answers of the worker threads."""
        self._unreached: list[LearnerId] = []
        """Learners to which an assignment could not be sent since all messages were last read."""
        self._stop_reasons: list[str] = []
        self._live = LiveFigures()
        self._status: Mapping[str, Json] = {}
        self._ended = False
        # These times lie far in the past, so that status and tick are due at the first turn.
        self._status_at_s = self._ticked_at_s = -1e9
        self._all_heard_s = -1e9
        """Last time at which all messages that had arrived were read."""

    def request_stop(self, reason: str) -> None:
        """Request a stop with everything saved. Safe to call from a signal handler."""
        self._stop_reasons.append(reason)

    def run(self) -> None:
        """Serve until the run ends.

        Raises:
            StorageError: If a commit fails (on a full disk only after some time), or the run's
                directory was removed. Acknowledged work is never lost, because it was committed.
        """
        # Modules are imported while learners start, so that the first evaluation need not wait.
        self._worker.submit(import_slow_modules)
        try:
            self._handle([events.ControllerStarted()])
            while not self._ended:
                self._serve_once()
            failpoint("controller.ended")
            # `sweep` may run only when no learner is alive and no backup is being made.
            self._launcher.close()
            failpoint("controller.before_backup")
            self._upkeep.finish()
            for threads in (self._worker, self._fitter, self._reader):
                threads.shutdown(wait=True)
            failpoint("controller.before_sweep")
            sweep(self._run_dir, self._state.tables)
            self._write_status()
            # Hooks are finished last, so that everything is saved before their last call.
            self._finish_hooks()
        finally:
            for hooks in self._hooks:
                hooks.close()
            self._upkeep.abandon()
            for threads in (self._worker, self._fitter, self._reader):
                threads.shutdown(wait=False, cancel_futures=True)

    def _serve_once(self) -> None:
        # Exits are read before messages and handled after them, so that a learner that sent a
        # Goodbye and then ended does not count as lost.
        exited = self._launcher.exited()
        self._hear()
        # A tick checks all learners, which takes time, so while events wait it comes less often.
        now_s = self._clock()
        if self._inbox.is_empty or now_s - self._ticked_at_s >= TICK_S:
            self._ticked_at_s = now_s
            # The allowance for unread messages is capped, so that a peer that floods the socket
            # cannot postpone timeouts for ever.
            deaf_s = min(now_s - self._all_heard_s, self._state.crew.patience.liveness_s)
            waiting = frozenset(self._launcher.waiting())
            self._handle([events.Ticked(deaf_s=deaf_s, waiting=waiting)])
            for hooks in self._hooks:
                for finding in hooks.poll():
                    self._inbox.expect(_done(finding))
        self._work()
        for slot, code in exited:
            self._handle([events.LearnerExited(slot=slot, code=code)])
        # A signal handler may append at any time, so reasons are popped one by one.
        while self._stop_reasons:
            self._handle([events.StopRequested(reason=self._stop_reasons.pop(0))])
        now_s = self._clock()
        if now_s - self._status_at_s >= STATUS_S:
            self._write_status()
        self._upkeep.turn(self._state.tables)

    def _hear(self) -> None:
        """Read messages that have arrived, for at most `MAX_HEARING_S`.

        Heartbeats must not wait until all earlier events are handled, because a learner that is not
        heard counts as lost.
        """
        if self._inbox.is_empty:
            timeout_s = BUSY_TICK_S if self._inbox.num_awaited else TICK_S
        else:
            # While events wait, the socket is read without waiting for new messages.
            timeout_s = 0.0
        begin_s = self._clock()
        while received := self._transport.receive(timeout_s):
            for learner, message in received:
                self._receive(learner, message)
            if self._clock() - begin_s >= MAX_HEARING_S:
                return
            timeout_s = 0.0
        self._all_heard_s = self._clock()
        # These events come after the last messages, so that a learner that sent a Goodbye and then
        # ended does not count as lost.
        for learner in self._unreached:
            self._inbox.record(events.LearnerUnreachable(learner=learner))
        self._unreached.clear()

    def _work(self) -> None:
        """Handle waiting events for at most `MAX_WORK_S`, after which messages are read again.

        Many small events share a commit.
        """
        end_s = self._clock() + MAX_WORK_S
        while (
            not self._inbox.is_empty and self._state.phase.name != "over" and self._clock() < end_s
        ):
            self._handle(self._next_events())

    def _next_events(self) -> Iterator[Event]:
        """Yield waiting events that share a commit, for at most `MAX_COMMIT_S`."""
        end_s = self._clock() + MAX_COMMIT_S
        waiting = self._inbox.drain()
        # The time is checked first, because an event that was removed from the inbox must be
        # handled.
        while self._clock() < end_s and (event := next(waiting, None)) is not None:
            yield event

    def _write_status(self) -> None:
        # The directory is checked once a second, so that a run whose directory was removed ends
        # even if there is nothing to commit.
        self._journal.require_place()
        self._status_at_s = self._clock()
        document = self._live.document(
            self._state,
            now_s=self._status_at_s,
            endpoint=self._transport.endpoint,
            store_endpoint=None if self._store is None else self._store.endpoint,
        )
        document["bad_messages"] = dict(self._transport.num_bad)
        self._status = document
        self._show_status(document)
        self._sinks.flush()
        self._hear_sinks()

    def _show_status(self, document: Mapping[str, Json]) -> None:
        """Write the live status; if the disk refuses, log that and go on."""
        try:
            write_status(self._run_dir, document)
        except StorageError as error:
            logger.warning("the live figures could not be written: %s", error)
        self._on_status(document)

    def _hear_sinks(self) -> None:
        for told in self._sinks.told():
            self._inbox.expect(_done(told))

    def _finish_hooks(self) -> None:
        for hooks in self._hooks:
            # The run is over and its journal complete, so these findings are only logged.
            for told in hooks.finish(wait=self._wait, on_wait=self._on_wait):
                if told.what:
                    logger.warning("%s: %s: %s", told.kind, told.subject, told.what)

    def _commit(self, rows: Sequence[Row]) -> None:
        def alert(reason: str) -> None:
            # The previous status is shown, because the state in memory is not committed yet.
            text = f"{reason}; nothing is acknowledged until the journal has room"
            waiting = document("storage_full", "", text, advice=STORAGE_ADVICE)
            self._show_status({**self._status, "alerts": [waiting]})

        commit_patiently(
            self._journal,
            rows,
            should_end=lambda: bool(self._stop_reasons),
            tell=alert,
            clock=self._clock,
            wait=self._wait,
        )

    def _receive(self, learner: LearnerId, message: Message) -> None:
        known = self._state.crew.learners.get(learner)
        match message:
            case Hello():
                # The slot is looked up now, as the process may end before the event is handled.
                slot = self._launcher.slot_of(message)
                joined = events.LearnerJoined(learner=learner, hello=message, slot=slot)
                if known is None:
                    self._inbox.record(joined)
                else:
                    self._handle([joined])  # answer at once: the learner did not get its Welcome
            case _ if known is None:
                # A learner whose Hello still waits in the inbox is about to join.
                if not self._inbox.holds(learner, events.LearnerJoined):
                    self._inbox.record(events.StrangerSpoke(learner=learner))
            case Heartbeat():
                # A heartbeat is handled at once instead of waiting in the inbox, because timeouts
                # depend on it and it takes no time.
                self._handle([events.HeartbeatReceived(learner=learner, heartbeat=message)])
            case Finished() | Failed():
                lease = message.assignment_id, message.attempt
                self._note_result(learner, message, lease if known.has(*lease) else None)
            case Goodbye():
                self._inbox.record(events.LearnerLeft(learner=learner, reason=message.reason))
            case _:
                logger.warning("learner %s sent a controller's message", learner)

    def _note_result(
        self, learner: LearnerId, message: Finished | Failed, lease: Lease | None
    ) -> None:
        """Put a result into the inbox, after its checkpoints were verified if it fits a lease.

        Args:
            learner: Learner that sent it.
            message: The result.
            lease: Lease that the result is for; None: the learner does not have it. At most one
                result without a lease waits, so that a learner cannot fill the inbox.
        """
        row = self._state.tables.assignments.get(message.assignment_id)
        if isinstance(message, Failed) and lease and row and message.kind == "checkpoint":
            # Reading takes a while, and learners repeat their results meanwhile, so read only once.
            if self._inbox.begins_reading(learner, lease):
                reading = self._reader.submit(
                    read_back, self._run_dir, learner, message, row.message
                )
                self._inbox.expect(reading)
        elif isinstance(message, Failed):
            self._inbox.record(events.AssignmentFailed(learner=learner, failed=message), lease)
        elif lease is None or row is None:
            self._inbox.record(
                events.AssignmentFinished(learner=learner, finished=message, manifests={})
            )
        elif self._inbox.begins_reading(learner, lease):
            self._inbox.expect(
                self._reader.submit(verify, self._run_dir, learner, message, row.message)
            )

    def _handle(self, told: Iterable[Event]) -> None:
        """Handle events by the state machine, commit rows, and only then carry out commands."""
        rows: list[Row] = []
        wanted: list[Command] = []
        for event in told:
            if self._state.phase.name == "over":
                break
            failpoint("controller.told")
            now = Now(monotonic_s=self._clock(), utc=self._utc())
            tx = handle(self._state, event, now)
            rows += tx.rows
            wanted += tx.commands
        # Commands are checked before the commit and carried out after it, so each journaled
        # assignment can be sent, and each sent one is journaled.
        check_commands(wanted)
        if rows:
            failpoint("controller.before_commit")
            self._commit(rows)
            failpoint("controller.committed")
            self._on_commit(rows)
        self._live.record(self._state, now_s=self._clock())
        # Grants are sent before messages, as a learner may publish soon after its assignment came.
        self._grant()
        for command in wanted:
            self._carry_out(command)
            failpoint("controller.carried_out")

    def _grant(self) -> None:
        if self._store is None:
            return
        leases = open_leases(self._state.crew.learners)
        if leases != self._leases:
            self._leases = leases
            self._store.grant(
                open_grants(
                    self._state.settings.setup, self._state.tables, self._state.crew.learners
                )
            )

    def _carry_out(self, command: Command) -> None:
        match command:
            case SendMessage():
                self._send(command)
            case events.StartLearner():
                failpoint("controller.before_start")
                with storage_errors(self._run_dir):
                    self._launcher.start(command.slot, command.populations)
                failpoint("controller.started")
            case events.KillLearner():
                self._launcher.kill(command.slot, dump_stacks=command.dump_stacks)
            case events.ExploreHyperparameters():
                self._inbox.expect(self._worker.submit(answer, command))
            case events.FitRatings():
                self._inbox.expect(self._fitter.submit(_fit, command.known))
            case events.LinkGhosts():
                # Ghosts are linked here and not on a thread, because later commands may send
                # messages that name them.
                failpoint("controller.before_link")
                self._inbox.expect(_done(link(self._run_dir, command.ghosts)))
                failpoint("controller.linked")
            case events.RemoveCheckpoints():
                # A thread removes directories, because large ones take a while and nothing waits.
                self._inbox.expect(self._reader.submit(remove, self._run_dir, command.keys))
            case events.WriteMetrics():
                self._sinks.write(command.policy, command.agent_steps, command.metrics)
                self._hear_sinks()
            case events.EndRun():
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
        # Other messages need not be tracked, because a learner without an answer repeats its own.
        if is_assignment and not sent:
            self._unreached.append(command.learner)


def _fit(known: Snapshot) -> Event:
    return events.RatingsFitted(ratings=fit_ratings(fit_input(known)))


def _done(event: Event) -> Future[Event]:
    future: Future[Event] = Future()
    future.set_result(event)
    return future


Lease = tuple[AssignmentId, int]
"""Assignment, and the number of the attempt at it."""


class Inbox:
    """Queue of events that wait to be handled. Owned by the controller's thread.

    A message that a learner repeats while the first one waits is dropped, so that repetitions
    cannot make the queue grow.
    """

    def __init__(self) -> None:
        self._heard: dict[Hashable, LearnerEvent] = {}
        self._num_awaited = 0
        self._answers: deque[Future[Event]] = deque()
        """Answers that are ready, in the order in which they became so."""
        self._reading: set[tuple[LearnerId, Lease]] = set()
        """Results that are being read, or whose event is not handled yet."""

    @property
    def is_empty(self) -> bool:
        """Return whether no event is ready to be handled."""
        return not self._heard and not self._answers

    @property
    def num_awaited(self) -> int:
        """Return the number of requested answers that were not handled yet."""
        return self._num_awaited

    def record(self, event: LearnerEvent, lease: Lease | None = None) -> None:
        """Append an event, unless one of its learner, kind and lease waits already."""
        # The first event stays, because a repetition is equal and must not move it to the end.
        self._heard.setdefault((event.learner, type(event), lease), event)

    def holds(self, learner: LearnerId, kind: type[LearnerEvent]) -> bool:
        """Return whether an event of a learner and kind, without a lease, waits."""
        return (learner, kind, None) in self._heard

    def begins_reading(self, learner: LearnerId, lease: Lease) -> bool:
        """Return whether a result is new, and mark it as being read until its event is handled."""
        if (learner, lease) in self._reading:
            return False
        self._reading.add((learner, lease))
        return True

    def expect(self, answer: Future[Event]) -> None:
        """Append an answer as soon as it is ready; any thread may make it."""
        self._num_awaited += 1
        # The callback runs in the thread that made the answer; appending to a deque is atomic.
        answer.add_done_callback(self._answers.append)

    def drain(self) -> Iterator[Event]:
        """Remove and yield all events: by turns the oldest of learners and the oldest answer."""
        # Taking turns keeps a long queue of one kind from delaying events of the other.
        while not self.is_empty:
            if self._heard:
                yield self._heard.pop(next(iter(self._heard)))
            if self._answers:
                yield self._take_answer()

    def _take_answer(self) -> Event:
        # An exception of a worker thread is raised here, in the controller's thread.
        event = self._answers.popleft().result()
        self._num_awaited -= 1
        match event:
            # Handling the event ends the lease, so a later repetition is recognized by that.
            case AssignmentFinished(learner=learner, finished=result):
                self._reading.discard((learner, (result.assignment_id, result.attempt)))
            case AssignmentFailed(learner=learner, failed=fault):
                self._reading.discard((learner, (fault.assignment_id, fault.attempt)))
        return event
