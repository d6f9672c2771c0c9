"""Many simulated learners in one process, on the real wire: for `busy_controller`.

    python -m experiments.load.learner_process RUN_DIR ENDPOINT --first 0 --learners 500

Each has a socket and the product's own state machine of a learner: Hello, heartbeats, a queue of
one, and Finished again until that is acknowledged. What it trains it publishes, as tiny real
checkpoints; that does not wait for the disk: in a real run these would be other machines' disks.

Says when everybody has work, and waits for a line on standard input. Then everybody works in no
time at first, so that the controller has all it can do; then at a pace at which it has ``--share``
of that. Prints one JSON document when both are over, and goes on until the controller says stop.
"""

from __future__ import annotations

import heapq
import os
import socket as host_names
import sys
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import numpy as np
import zmq
from msgspec.structs import replace

from arena.checkpoints.files import store_digest
from arena.config import LearnerSetup
from arena.learners.state import (
    Command,
    Exit,
    LearnerState,
    StopWork,
)
from arena.types import LearnerId
from arena.wire.messages import (
    PROTOCOL_VERSION,
    Evaluate,
    Finished,
    FromController,
    FromLearner,
    Heartbeat,
    Hello,
    Train,
)
from arena.wire.session import LearnerSession
from experiments.harness import parser_of, say
from experiments.load.work import publishing_learner
from populations.config.run_file import RunFile, learner_setup
from populations.simulation.learner import SimulatedLearner

MAX_WORK_S = 20.0
"""Longest work: after a minute without progress a learner counts as stuck."""

WARM_UP = 0.25
"""Share of each phase that is not measured."""

SPREAD = 0.5
"""Share of its mean time by which work may be longer or shorter."""


@dataclass(slots=True)
class Member:
    """One learner of the swarm.

    Attributes:
        state: State of its conversation.
        session: Its end of the wire.
        socket: Its own.
        sent_s: When it sent each Finished that no assignment has followed yet.
        num_given: Assignments that it was given.
        num_done: Assignments that it has carried out.
    """

    state: LearnerState
    session: LearnerSession
    socket: zmq.Socket[bytes]
    sent_s: deque[float] = field(default_factory=deque)
    num_given: int = 0
    num_done: int = 0


@dataclass(slots=True)
class Phase:
    """Figures between two times.

    Attributes:
        begin_s: Time from which on it counts.
        end_s: Until here.
        num_given: Assignments that arrived.
        num_resent: Finished that were said again.
        num_refused: Messages that the socket did not take: the controller reads too slowly.
        latencies_s: Seconds from the first sending of a Finished to the next assignment.
    """

    begin_s: float
    end_s: float
    num_given: int = 0
    num_resent: int = 0
    num_refused: int = 0
    latencies_s: list[float] = field(default_factory=list)

    @classmethod
    def after(cls, start_s: float, duration_s: float) -> Phase:
        """Begin to count once the warm-up is over."""
        return cls(start_s + WARM_UP * duration_s, start_s + duration_s)

    def figures(self, now_s: float) -> dict[str, float]:
        """Return plain numbers, times in milliseconds."""
        elapsed_s = max(min(now_s, self.end_s) - self.begin_s, 1e-9)
        latencies = np.array(self.latencies_s or [float("nan")])
        return {
            "assignments": self.num_given,
            "assignments_per_s": self.num_given / elapsed_s,
            "resent": self.num_resent,
            "refused": self.num_refused,
            "p50_ms": 1e3 * float(np.quantile(latencies, 0.5)),
            "p99_ms": 1e3 * float(np.quantile(latencies, 0.99)),
            "max_ms": 1e3 * float(latencies.max()),
        }


class Swarm:
    """All learners of this process, in one thread."""

    def __init__(
        self, setup: LearnerSetup, learner: SimulatedLearner, endpoint: str, *, names: list[str]
    ) -> None:
        self._learner = learner
        self._context = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, len(names) + 8)
        self._poller = zmq.Poller()
        self._rng = np.random.default_rng(0)
        self._members = [
            Member(
                state=LearnerState(hello=_hello(setup, LearnerId(name))),
                session=LearnerSession(run=setup.run, learner=LearnerId(name)),
                socket=self._connect(endpoint, name),
            )
            for name in names
        ]
        self._by_socket = {member.socket: member for member in self._members}
        self._work: list[tuple[float, int, Member, Train | Evaluate]] = []
        self._ticks: list[tuple[float, int, Member]] = []
        self._num_planned = 0
        self._mean_s = 0.0
        self._phase = Phase(0.0, 0.0)

    def _connect(self, endpoint: str, name: str) -> zmq.Socket[bytes]:
        socket: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        # As `arena.wire.zeromq` sets them; one context serves all, so that threads are few.
        for option, value in ((zmq.LINGER, 0), (zmq.IMMEDIATE, 1), (zmq.SNDHWM, 256)):
            socket.setsockopt(option, value)
        socket.setsockopt(zmq.ROUTING_ID, name.encode())
        socket.connect(endpoint)
        self._poller.register(socket, zmq.POLLIN)
        return socket

    def begin(self) -> None:
        """Say Hello, and work until all learners have work, and then until told to go."""
        for member in self._members:
            self._carry_out(member, member.state.greet(now_s=time.monotonic()))
            self._plan_tick(member)
        while not all(member.num_given or member.state.is_over for member in self._members):
            self._serve_once()
        say({"ready": True})
        self._poller.register(sys.stdin.fileno(), zmq.POLLIN)
        while self._serve_once():
            pass
        sys.stdin.readline()
        self._poller.unregister(sys.stdin.fileno())

    def run(self, *, phase_s: float, share: float) -> dict[str, object]:
        """Go through both phases."""
        busy = self._phase = Phase.after(time.monotonic(), phase_s)
        self._serve_until(busy.end_s)
        figures: dict[str, object] = {"busy": busy.figures(time.monotonic())}
        rate = share * busy.num_given / (busy.end_s - busy.begin_s)
        self._mean_s = min(len(self._members) / max(rate, 1e-9), MAX_WORK_S)
        # Everybody has begun to work at the new pace before anything counts.
        start_s = time.monotonic() + 2.0 * self._mean_s
        paced = self._phase = Phase.after(start_s, phase_s)
        self._serve_until(paced.end_s)
        figures["paced"] = paced.figures(time.monotonic())
        figures["work_s"] = self._mean_s
        figures["given"] = [member.num_given for member in self._members]
        # Given up by the controller: they were not heard for too long.
        figures["lost"] = len(self._members) - len(self._by_socket)
        self._phase = Phase(0.0, 0.0)
        return figures

    def serve_to_the_end(self) -> None:
        """Serve until every learner has left, or the process that started this one is gone."""
        self._poller.register(sys.stdin.fileno(), zmq.POLLIN)
        while self._by_socket and self._serve_once():
            pass

    def close(self) -> None:
        """Release the sockets."""
        self._context.destroy(linger=1000)

    def _serve_until(self, end_s: float) -> None:
        while time.monotonic() < end_s and self._by_socket:
            self._serve_once()

    def _serve_once(self) -> bool:
        """Let what has arrived or is due happen; False once it is not needed any more."""
        now_s = time.monotonic()
        due_s = min(heap[0][0] for heap in (self._work, self._ticks, [(now_s + 0.1,)]) if heap)
        for socket, _ in self._poller.poll(max(0, int(1e3 * (due_s - now_s)))):
            if not isinstance(socket, zmq.Socket):
                return False
            self._receive(self._by_socket[socket])
        now_s = time.monotonic()
        while self._work and self._work[0][0] <= now_s:
            _, _, member, message = heapq.heappop(self._work)
            finished, _ = self._learner.carry_out(message)
            member.num_done += 1
            self._carry_out(member, member.state.finish(finished, now_s=now_s), finished)
        while self._ticks and self._ticks[0][0] <= now_s:
            _, _, member = heapq.heappop(self._ticks)
            if not member.state.is_over:
                self._carry_out(member, member.state.tick(now_s=now_s))
                self._plan_tick(member)
        return True

    def _receive(self, member: Member) -> None:
        while not member.state.is_over:
            try:
                frames = member.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            opened = member.session.open(frames)
            if opened is None:
                continue
            header, message = opened
            if not isinstance(message, FromController):
                continue
            if isinstance(message, Train | Evaluate):
                self._note_given(member)
            now_s = time.monotonic()
            commands = member.state.receive(message, epoch=header.epoch, now_s=now_s)
            self._carry_out(member, commands)

    def _note_given(self, member: Member) -> None:
        now_s = time.monotonic()
        is_counted = self._phase.begin_s <= now_s < self._phase.end_s
        member.num_given += 1
        self._phase.num_given += is_counted
        if member.sent_s:
            latency_s = now_s - member.sent_s.popleft()
            if is_counted:
                self._phase.latencies_s.append(latency_s)

    def _carry_out(
        self, member: Member, commands: Iterable[Command], result: Finished | None = None
    ) -> None:
        now_s = time.monotonic()
        for command in commands:
            match command:
                case Heartbeat():
                    self._send(member, replace(command, progress=member.num_done))
                case Train() | Evaluate():
                    share = 1.0 + SPREAD * (2.0 * float(self._rng.random()) - 1.0)
                    self._plan_work(member, command, now_s + share * self._mean_s)
                case StopWork():
                    pass  # it is done when it is done
                case Exit():
                    self._leave(member)
                case _:
                    if command is result:
                        member.sent_s.append(now_s)
                    elif isinstance(command, Finished):
                        self._phase.num_resent += 1
                    self._send(member, command)

    def _send(self, member: Member, message: FromLearner) -> None:
        frames = member.session.seal(message, epoch=member.state.epoch)
        try:
            member.socket.send_multipart(frames, flags=zmq.NOBLOCK)
        except zmq.Again:
            self._phase.num_refused += 1

    def _plan_work(self, member: Member, message: Train | Evaluate, due_s: float) -> None:
        self._num_planned += 1
        heapq.heappush(self._work, (due_s, self._num_planned, member, message))

    def _plan_tick(self, member: Member) -> None:
        self._num_planned += 1
        # Messages that fall due in between are sent a little late.
        due_s = max(member.state.due_s(), time.monotonic() + 0.02)
        heapq.heappush(self._ticks, (due_s, self._num_planned, member))

    def _leave(self, member: Member) -> None:
        self._poller.unregister(member.socket)
        del self._by_socket[member.socket]


def _hello(setup: LearnerSetup, learner: LearnerId) -> Hello:
    return Hello(
        learner=learner,
        pid=os.getpid(),
        host=host_names.gethostname(),
        protocol=PROTOCOL_VERSION,
        arena_version="simulated",
        environment_digest=setup.spec.digest,
        config_digest=setup.digest,
        device="cpu",
        slots=1,
        populations=(),
        store=store_digest(Path(setup.root)),
    )


def main() -> None:
    """Read the arguments and be many learners."""
    parser = parser_of(__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("endpoint")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--learners", type=int, default=500)
    parser.add_argument("--phase-s", type=float, default=30.0)
    parser.add_argument("--share", type=float, default=0.5)
    arguments = parser.parse_args()
    run_file = RunFile.load(arguments.run / "run.yaml")
    setup = learner_setup(run_file, root=arguments.run)
    numbers = range(arguments.first, arguments.first + arguments.learners)
    swarm = Swarm(
        setup,
        publishing_learner(run_file, setup),
        arguments.endpoint,
        names=[f"simulated-{os.getpid()}-{number}" for number in numbers],
    )
    with patch("arena.checkpoints.publish.os.fsync"):
        swarm.begin()
        say(swarm.run(phase_s=arguments.phase_s, share=arguments.share))
        swarm.serve_to_the_end()
    swarm.close()


if __name__ == "__main__":
    main()
