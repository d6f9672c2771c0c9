"""The controller's I/O shell: sockets, files, processes, clocks around the state machine.

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
# Shorter while an answer of a worker thread is awaited: no socket tells of it.
BUSY_TICK_S = 0.005
MAX_HEARING_S = 0.1
MAX_WORK_S = 0.1
"""How long one turn hears learners, and how long it then does what follows from what they said."""

MAX_COMMIT_S = 0.02
"""Time after which what was done is committed and answered."""

STATUS_S = 1.0


def utc_now() -> str:
    """Return the time for records, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Store(Protocol):
    """Process that serves checkpoints to learners that do not see the run's directory."""

    @property
    def endpoint(self) -> str:
        """Return the address that it listens on."""

    def grant(self, grants: Mapping[str, tuple[Grant, ...]]) -> None:
        """Have it take these checkpoints and no others; by the name of each learner's key."""


class Server:
    """Loop of a controller until its run ends.

    All but four threads (worker, fits, reader, journal) is in ``run``'s thread.
    Owns the journal's only writing connection, the transport, the launcher, the sinks and the hooks
    while it runs; closes none of them but launcher and hooks.
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
        # Explorations do not wait for a fit, unless the order of both is to be always the same.
        self._fitter = (
            self._worker if state.settings.config.deterministic else worker("controller-fits")
        )
        # Results do not wait for a fit of ratings, which may take seconds.
        self._reader = worker("controller-reader")
        self._upkeep = JournalUpkeep(
            run_dir, journal, state.settings.config.journal, clock=clock, worker=worker
        )
        self._inbox = Inbox()
        """Events that wait: of learners, and answers of the worker threads."""
        self._unreached: list[LearnerId] = []
        """Learners to which an assignment could not be sent since all that had come was heard."""
        self._stop_reasons: list[str] = []
        self._live = LiveFigures()
        self._status: Mapping[str, Json] = {}
        self._ended = False
        # Long ago: due at the first turn.
        self._status_at_s = self._ticked_at_s = -1e9
        self._all_heard_s = -1e9
        """Time when no message was waiting any more."""

    def request_stop(self, reason: str) -> None:
        """Ask for a stop with everything saved. Safe to call from a signal handler."""
        self._stop_reasons.append(reason)

    def run(self) -> None:
        """Serve until the run ends.

        Raises:
            StorageError: If a commit fails, for some time where that may pass, or the run's
                directory is gone; what was not committed was not acknowledged: nothing is lost.
        """
        # Modules are imported while learners start, or the first evaluation would wait for it.
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
            # Hooks are finished last: all is saved whatever they do, and they find all of it.
            self._finish_hooks()
        finally:
            for hooks in self._hooks:
                hooks.close()
            self._upkeep.abandon()
            for threads in (self._worker, self._fitter, self._reader):
                threads.shutdown(wait=False, cancel_futures=True)

    def _serve_once(self) -> None:
        # Exits are asked for before messages are read and handled after them, so that a learner
        # that said goodbye and ended does not count as lost.
        exited = self._launcher.exited()
        self._hear()
        # It looks at everybody, so where there is always something to do, not every time.
        now_s = self._clock()
        if self._inbox.is_empty or now_s - self._ticked_at_s >= TICK_S:
            self._ticked_at_s = now_s
            # Cap the grace, so that a peer that floods the socket cannot extend it for ever.
            deaf_s = min(now_s - self._all_heard_s, self._state.crew.patience.liveness_s)
            waiting = frozenset(self._launcher.waiting())
            self._handle([events.Ticked(deaf_s=deaf_s, waiting=waiting)])
            for hooks in self._hooks:
                for finding in hooks.poll():
                    self._inbox.expect(_done(finding))
        self._work()
        for slot, code in exited:
            self._handle([events.LearnerExited(slot=slot, code=code)])
        # A signal handler may append to it at any time, so it is emptied by pops.
        while self._stop_reasons:
            self._handle([events.StopRequested(reason=self._stop_reasons.pop(0))])
        now_s = self._clock()
        if now_s - self._status_at_s >= STATUS_S:
            self._write_status()
        self._upkeep.turn(self._state.tables)

    def _hear(self) -> None:
        """Take in what has arrived, or what there is time for.

        Many learners' heartbeats must not wait until all that others want is done: who is not heard
        is taken for dead.
        """
        if self._inbox.is_empty:
            timeout_s = BUSY_TICK_S if self._inbox.num_awaited else TICK_S
        else:
            # The socket is only looked at while events wait.
            timeout_s = 0.0
        begin_s = self._clock()
        while received := self._transport.receive(timeout_s):
            for learner, message in received:
                self._receive(learner, message)
            if self._clock() - begin_s >= MAX_HEARING_S:
                return
            timeout_s = 0.0
        self._all_heard_s = self._clock()
        # These stand behind the last messages, so that a learner that said goodbye and ended does
        # not count as lost.
        for learner in self._unreached:
            self._inbox.record(events.LearnerUnreachable(learner=learner))
        self._unreached.clear()

    def _work(self) -> None:
        """Do what was heard and what is ready, as long as there is time: learners are to be heard.

        Many small things share a commit.
        """
        end_s = self._clock() + MAX_WORK_S
        while (
            not self._inbox.is_empty and self._state.phase.name != "over" and self._clock() < end_s
        ):
            self._handle(self._next_events())

    def _next_events(self) -> Iterator[Event]:
        """Yield the events that share a commit; none is taken after time is up, so none is lost."""
        end_s = self._clock() + MAX_COMMIT_S
        waiting = self._inbox.drain()
        # The time is asked first: an event that is taken out has to be handled.
        while self._clock() < end_s and (event := next(waiting, None)) is not None:
            yield event

    def _write_status(self) -> None:
        # The place is checked once a second: a run without its directory ends, even with nothing to
        # commit.
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
        """Write the live figures; a disk that refuses them ends no run."""
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
            # The log alone has it: the run is over, and its journal says how it ended.
            for told in hooks.finish(wait=self._wait, on_wait=self._on_wait):
                if told.what:
                    logger.warning("%s: %s: %s", told.kind, told.subject, told.what)

    def _commit(self, rows: Sequence[Row]) -> None:
        def alert(reason: str) -> None:
            # The figures of before: what is in memory now is not committed.
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
                # The slot is looked up now: the process may have ended when the event is handled.
                slot = self._launcher.slot_of(message)
                joined = events.LearnerJoined(learner=learner, hello=message, slot=slot)
                if known is None:
                    self._inbox.record(joined)
                else:
                    self._handle([joined])  # it is not sure whether anybody is there
            case _ if known is None:
                # A learner whose Hello still waits is no stranger.
                if not self._inbox.holds(learner, events.LearnerJoined):
                    self._inbox.record(events.StrangerSpoke(learner=learner))
            case Heartbeat():
                # A heartbeat does not wait with the other events: silence is judged by it, and it
                # takes no time.
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
        """Let a result wait; what was published is verified first, if its learner was given that.

        Args:
            learner: Learner that sent it.
            message: The result.
            lease: Lease of the learner; None: it does not have that. At most one message without a
                lease waits, so that no learner queues more work than it was given.
        """
        row = self._state.tables.assignments.get(message.assignment_id)
        if isinstance(message, Failed) and lease and row and message.kind == "checkpoint":
            # The reader takes a while, and learners repeat their results meanwhile.
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
        """Let the state machine take events in, commit what follows, and only then act."""
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
        # Commands are checked before the commit and carried out after it: each journaled assignment
        # can be sent, and each sent one is journaled.
        check_commands(wanted)
        if rows:
            failpoint("controller.before_commit")
            self._commit(rows)
            failpoint("controller.committed")
            self._on_commit(rows)
        self._live.record(self._state, now_s=self._clock())
        # Grants go out before the messages: a learner may publish soon after it has its assignment.
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
                # Ghosts are linked before the messages that name them: commands are carried out in
                # order.
                failpoint("controller.before_link")
                self._inbox.expect(_done(link(self._run_dir, command.ghosts)))
                failpoint("controller.linked")
            case events.RemoveCheckpoints():
                # Large directories take a while, and nothing depends on their removal.
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
        # Other messages are repeated on demand: learners repeat what they want answered.
        if is_assignment and not sent:
            self._unreached.append(command.learner)


def _fit(known: Snapshot) -> Event:
    return events.RatingsFitted(ratings=fit_ratings(fit_input(known)))


def _done(event: Event) -> Future[Event]:
    future: Future[Event] = Future()
    future.set_result(event)
    return future


Lease = tuple[AssignmentId, int]
"""An assignment and the attempt at it."""


class Inbox:
    """Events in line, each thing that a learner says once. Owned by the controller's thread.

    What learners say again meanwhile is not kept again, so they cannot make it grow.
    """

    def __init__(self) -> None:
        self._heard: dict[Hashable, LearnerEvent] = {}
        self._num_awaited = 0
        self._answers: deque[Future[Event]] = deque()
        """Answers that are ready, in the order of their coming."""
        self._reading: set[tuple[LearnerId, Lease]] = set()
        """Results that were heard and are not taken out yet."""

    @property
    def is_empty(self) -> bool:
        """Return whether nothing is ready."""
        return not self._heard and not self._answers

    @property
    def num_awaited(self) -> int:
        """Return how much of what was asked for has not been taken out yet."""
        return self._num_awaited

    def record(self, event: LearnerEvent, lease: Lease | None = None) -> None:
        """Put an event in line, unless its learner has one of that kind there for that lease."""
        # The first stays: a repetition says the same, and must not lose its place in line.
        self._heard.setdefault((event.learner, type(event), lease), event)

    def holds(self, learner: LearnerId, kind: type[LearnerEvent]) -> bool:
        """Return whether an event of a learner, and for no lease, is in line."""
        return (learner, kind, None) in self._heard

    def begins_reading(self, learner: LearnerId, lease: Lease) -> bool:
        """Return whether a result is new; it counts as read until its event is taken out."""
        if (learner, lease) in self._reading:
            return False
        self._reading.add((learner, lease))
        return True

    def expect(self, answer: Future[Event]) -> None:
        """Put an event in line as soon as it is ready; any thread may make it."""
        self._num_awaited += 1
        # Runs in the thread that made the answer; appending to a deque is atomic.
        answer.add_done_callback(self._answers.append)

    def drain(self) -> Iterator[Event]:
        """Take events out until there are none: the oldest heard and the oldest ready in turn."""
        # Both queues have their turn, so that neither learners nor answers wait for all of the
        # others.
        while not self.is_empty:
            if self._heard:
                yield self._heard.pop(next(iter(self._heard)))
            if self._answers:
                yield self._take_answer()

    def _take_answer(self) -> Event:
        # An error of a worker thread is raised here, in the controller's.
        event = self._answers.popleft().result()
        self._num_awaited -= 1
        match event:
            # The lease itself tells a repetition from now on.
            case AssignmentFinished(learner=learner, finished=result):
                self._reading.discard((learner, (result.assignment_id, result.attempt)))
            case AssignmentFailed(learner=learner, failed=fault):
                self._reading.discard((learner, (fault.assignment_id, fault.attempt)))
        return event
