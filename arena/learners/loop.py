"""The two threads of a learner around its state machine: one works, one talks.

Tests: `tests/faults/test_soak.py`.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import re
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

import psutil
from msgspec.structs import replace

from arena.checkpoints.files import store_digest
from arena.checkpoints.manifest import arena_version
from arena.config import LearnerSetup
from arena.errors import NotAdmitted, VersionMismatch
from arena.failpoints import SWITCH
from arena.learners.state import (
    EXIT_REFUSED,
    Command,
    Exit,
    LearnerState,
    Patience,
    StopWork,
)
from arena.learners.work.faults import fault_of
from arena.types import LearnerId, Tally, canonical_digest
from arena.users_code import pass_interrupt
from arena.wire.codec import encode
from arena.wire.messages import (
    PROTOCOL_VERSION,
    Acknowledge,
    Assignment,
    Evaluate,
    Failed,
    Finished,
    FromController,
    FromLearner,
    Header,
    Heartbeat,
    Hello,
    Train,
)
from arena.wire.transport import LearnerTransport

logger = logging.getLogger(__name__)

EXIT_CRASHED = 1
ACK_LOG = "ARENA_ACK_LOG"
LINGER_S = 1.0
MAX_WAIT_S = 1.0
ABANDON_S = 5.0
"""How long the worker may still run after the conversation has ended, before it is cut off."""


class Work(Protocol):
    """Carries out assignments; `arena.learners.work.worker.Worker` is one. Owned by one thread."""

    @property
    def device(self) -> object:
        """Device of the worker's networks."""

    def carry_out(self, assignment: Assignment) -> Finished | Failed:
        """Do an assignment."""

    def close(self) -> None:
        """Release everything."""


class MakeWork(Protocol):
    """Makes the worker, in the thread that is going to work."""

    def __call__(
        self, setup: LearnerSetup, *, progress: Progress, should_stop: Callable[[], bool]
    ) -> Work:
        """Make it."""


def make_worker(
    setup: LearnerSetup, *, progress: Progress, should_stop: Callable[[], bool]
) -> Work:
    """Make the product's worker, on one thread. Imports torch."""
    import torch

    from arena.learners.work.worker import Worker

    # Many learners share a machine, so each uses one core.
    torch.set_num_threads(1)
    return Worker(setup, progress=progress, should_stop=should_stop)


def new_learner_id(holder: str | None = None) -> LearnerId:
    """Return a unique id: the key's holder if there is one, host, process id, random digits."""
    host = re.sub(r"[^A-Za-z0-9]", "", socket.gethostname())[:24] or "host"
    own = f"{host}-{os.getpid()}-{secrets.token_hex(4)}"
    return LearnerId(own if holder is None else f"{holder}.{own}")


class Progress:
    """Counter of the training loop's turns and of trainees' decisions. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._progress = 0
        self._agent_steps = 0

    def advance(self, agent_steps: int = 0) -> None:
        """Count one turn of the loop."""
        with self._lock:
            self._progress += 1
            self._agent_steps += agent_steps

    def reset(self) -> None:
        """Start counting for another assignment: agent steps return to 0, turns do not."""
        with self._lock:
            self._agent_steps = 0

    @property
    def progress(self) -> int:
        """Turns of the loop since the process began; a constant value means that the loop hangs."""
        # No lock is needed: reading one integer is atomic, and the two counters need not be read
        # together.
        return self._progress

    @property
    def agent_steps(self) -> int:
        """Trainees' decisions since the last ``reset``."""
        return self._agent_steps


class NoProgress:
    """A `Progress` that nobody reads."""

    def advance(self, agent_steps: int = 0) -> None:
        """Do nothing."""


class Prove(Protocol):
    """Adds the proof of this host to a Hello (`arena.learners.proof`)."""

    def __call__(self, hello: Hello, *, should_stop: Callable[[], bool]) -> Hello:
        """Return the Hello to send."""


class LearnerLoop:
    """Serves a controller until the learner or the controller stops.

    ``run`` works in the thread that calls it; a second thread owns the transport and drives the
    state machine, so heartbeats go on while the training loop is busy. ``request_stop`` may be
    called from any thread and from a signal handler.
    """

    def __init__(
        self,
        setup: LearnerSetup,
        transport: LearnerTransport,
        populations: tuple[str, ...],
        *,
        learner: LearnerId,
        make_work: MakeWork = make_worker,
        prove: Prove | None = None,
        patience: Patience | None = None,
        cut_off: Callable[[int], object] | None = None,
    ) -> None:
        self._setup = setup
        self._transport = transport
        self._populations = populations
        self._learner = learner
        self._make_work = make_work
        self._prove = prove
        self._patience = patience or Patience()
        self._cut_off = cut_off
        self._progress = Progress()
        self._stop_work = threading.Event()
        self._worked_out = threading.Event()
        self._assignments: queue.SimpleQueue[Assignment | None] = queue.SimpleQueue()
        # A queue's lock could be held by the thread that a signal interrupts, and `request_stop`
        # runs in signal handlers. Deques need no lock.
        self._results: deque[Finished | Failed] = deque()
        self._stop_reasons: deque[str] = deque()
        self._process = psutil.Process()
        self._ack_log = make_ack_log(learner)
        self._exit: Exit | None = None

    def request_stop(self, reason: str) -> None:
        """Finish early, wait for the acknowledgement, send Goodbye; a second call ends at once."""
        self._stop_reasons.append(reason)
        self._transport.wake()

    def run(self) -> int:
        """Serve, and return the code that a process should exit with. Closes the transport.

        Raises:
            Exception: Any exception of making the worker, or of the proof.
        """
        try:
            work = self._make_work(
                self._setup, progress=self._progress, should_stop=self._stop_work.is_set
            )
            hello = self._hello(str(work.device))
            if self._prove is not None:
                hello = self._prove(hello, should_stop=lambda: bool(self._stop_reasons))
        except BaseException:
            self._transport.close(linger_s=0.0)
            raise
        state = LearnerState(hello=hello, patience=self._patience)
        # Hello names the worker's device, so the conversation begins after the worker is made. No
        # assignment can arrive before the worker is ready.
        talk = threading.Thread(target=self._talk, args=(state,), name="learner-wire", daemon=True)
        talk.start()
        try:
            while (assignment := self._assignments.get()) is not None:
                self._results.append(carry_out(work, assignment))
                self._transport.wake()
            work.close()
        finally:
            self._worked_out.set()
        talk.join()
        return self._exit.code if self._exit is not None else EXIT_CRASHED

    def _hello(self, device: str) -> Hello:
        return Hello(
            learner=self._learner,
            pid=os.getpid(),
            host=socket.gethostname(),
            protocol=PROTOCOL_VERSION,
            arena_version=arena_version(),
            environment_digest=self._setup.spec.digest,
            config_digest=self._setup.digest,
            device=device,
            slots=1,
            populations=self._populations,
            store=None,
        )

    def _talk(self, state: LearnerState) -> None:
        """Run the conversation's thread; stop the working thread however this one ends."""
        try:
            self._exit = self._converse(state)
        except (VersionMismatch, NotAdmitted) as error:
            self._exit = Exit(code=EXIT_REFUSED, reason=str(error))
        except BaseException as error:
            pass_interrupt(error)
            logger.exception("the learner's conversation broke")
            self._exit = Exit(code=EXIT_CRASHED, reason="the learner's conversation broke")
        finally:
            # The event ends running work; None ends the wait for the next assignment.
            self._stop_work.set()
            self._assignments.put(None)
            self._transport.close(linger_s=LINGER_S)
        level = logging.ERROR if self._exit.code else logging.INFO
        logger.log(level, "learner %s ends: %s", self._learner, self._exit.reason)
        # The Goodbye is sent by now; users' code that does not return must not keep the process
        # alive.
        if self._cut_off is not None and not self._worked_out.wait(ABANDON_S):
            self._cut_off(self._exit.code)

    def _converse(self, state: LearnerState) -> Exit:
        # A stop may have been requested while the worker was made, so Hello is sent before it.
        self._carry_out(state, state.greet(now_s=time.monotonic()))
        while self._exit is None:
            self._receive(state)
            while self._results:
                result = self._results.popleft()
                self._carry_out(state, state.finish(result, now_s=time.monotonic()))
            while self._stop_reasons:
                reason = self._stop_reasons.popleft()
                self._carry_out(state, state.stop(reason, now_s=time.monotonic()))
            # `tick` runs last, so that it sees the state after all other events.
            self._carry_out(state, state.tick(now_s=time.monotonic()))
        return self._exit

    def _receive(self, state: LearnerState) -> None:
        wait_s = min(max(state.due_s() - time.monotonic(), 0.0), MAX_WAIT_S)
        # A result or stop that arrives after this check wakes the transport, so it is not missed.
        is_told = bool(self._results or self._stop_reasons)
        received = self._transport.receive(0.0 if is_told else wait_s)
        if received is not None:
            header, message = received
            if isinstance(message, Acknowledge) and self._ack_log is not None:
                self._ack_log.acknowledged(message)
            if isinstance(message, FromController):
                now_s = time.monotonic()
                self._carry_out(state, state.receive(message, epoch=header.epoch, now_s=now_s))

    def _carry_out(self, state: LearnerState, commands: Iterable[Command]) -> None:
        for command in commands:
            match command:
                case Train() | Evaluate():
                    self._progress.reset()
                    # The event is cleared before the assignment is queued, because a stop of the
                    # previous assignment must not end this one.
                    self._stop_work.clear()
                    self._assignments.put(command)
                case StopWork():
                    self._stop_work.set()
                case Exit():
                    self._exit = command
                case _:
                    self._transport.send(self._message(command), epoch=state.epoch)

    def _message(self, command: FromLearner) -> FromLearner:
        if isinstance(command, Heartbeat):
            is_idle = command.assignment_id is None
            return replace(
                command,
                progress=self._progress.progress,
                # An idle learner reports 0: the counter keeps the last assignment's value until
                # the next begins.
                agent_steps=0 if is_idle else self._progress.agent_steps,
                rss_bytes=self._process.memory_info().rss,
            )
        if isinstance(command, Hello):
            # The digest is computed each time, because the mounted store may have changed.
            return replace(command, store=store_digest(Path(self._setup.root)))
        if isinstance(command, Finished) and self._ack_log is not None:
            # The log gets a result before it is sent, so that every acknowledged result is in the
            # log.
            self._ack_log.sent(command)
        return command


def carry_out(work: Work, assignment: Assignment) -> Finished | Failed:
    """Return an assignment's result; an exception, or a result that cannot be sent, is a Failed."""
    try:
        result = work.carry_out(assignment)
        # The result is encoded here, because an invalid one would end the conversation in the
        # other thread.
        encode(Header(run="check", epoch=0, learner=LearnerId("check"), sequence=0), result)
    except BaseException as error:
        # Users' code may raise anything, and the learner must survive it.
        pass_interrupt(error)
        logger.exception("assignment %d failed", assignment.assignment_id)
        fault = fault_of(error)
        return Failed(
            assignment_id=assignment.assignment_id,
            attempt=assignment.attempt,
            kind=fault.kind,
            reason=fault.reason,
        )
    return result


class AckLog:
    """A file of sent and acknowledged results, for tests. Owned by one thread.

    The journal has the controller's view; this log has the learner's, and a test compares them.
    ``ARENA_ACK_LOG`` names a directory, and is ignored unless ``ARENA_TESTING`` is ``1``. There is
    one file per learner and one JSON line per message, written before the message is sent.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def sent(self, finished: Finished) -> None:
        """Record that a result is about to be sent, perhaps again."""
        tallies = [tally_digest(tally) for tally in finished.tallies]
        self._write("sent", finished.assignment_id, finished.attempt, tallies=tallies)

    def acknowledged(self, message: Acknowledge) -> None:
        """Record that the controller has committed a result."""
        self._write("acknowledged", message.assignment_id, message.attempt)

    def _write(self, what: str, assignment_id: int, attempt: int, **more: object) -> None:
        line = json.dumps({"what": what, "lease": [assignment_id, attempt], **more}) + "\n"
        # The file is unbuffered: what is written outlives this process, whatever kills it.
        with self._path.open("ab", buffering=0) as file:
            file.write(line.encode())


def tally_digest(tally: Tally) -> str:
    """Return a digest that only equal tallies share."""
    pairs = [
        [p.first, p.second, p.wins, p.draws, p.losses, p.score_sum, p.square_sum]
        for p in tally.pairs
    ]
    returns = [[float(value) for value in tally.return_sum]]
    returns.append([float(value) for value in tally.return_sum_of_squares])
    return canonical_digest([list(tally.entrants), tally.matches, pairs, returns, tally.length_sum])


def make_ack_log(
    learner: LearnerId, *, environment: Mapping[str, str] = os.environ
) -> AckLog | None:
    """Return the log that a test requests; None in every real run."""
    # Two variables are required, as for failpoints: a forgotten one writes nothing in a real run.
    directory = environment.get(ACK_LOG)
    if directory is None or environment.get(SWITCH) != "1":
        return None
    return AckLog(Path(directory) / f"{learner}.jsonl")
