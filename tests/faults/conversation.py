"""A real controller and real learners' conversations in one process; only the work is simulated.

The server, the journal, ZeroMQ and the learner's two threads are the product's own. The work
publishes tiny checkpoints that are really there, so the controller reads every byte back.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from arena.config import LearnerSetup
from arena.learners.loop import LearnerLoop, Progress
from arena.learners.state import Patience as LearnerPatience
from arena.types import LearnerId
from arena.wire.messages import Assignment, Failed, Finished
from arena.wire.zeromq import ZmqControllerTransport, ZmqLearnerTransport
from experiments.load.work import publishing_learner
from populations.config.run_config import validate_config
from populations.config.run_file import new_run_file
from populations.controller.server.run_directory import OpenRun, create_run
from populations.controller.server.server import Server, utc_now
from populations.controller.state.leases import Patience
from populations.records.aggregates import Row
from populations.simulation.learner import SimulatedLearner
from tests.faults.chaos import ChaosProxy, Plan
from tests.populations.controller.server.test_server import NoLauncher
from tests.populations.controller.simulated import DUEL, duel_spec

UTC = "2000-01-01T00:00:00.000+00:00"

DOCUMENT: dict[str, object] = {
    **DUEL,
    "populations": {"player": {"size": 2}},
    "pbt": {
        "ready_agent_steps": 500,
        "warm_up_agent_steps": 500,
        "min_matches": 1,
        "min_rating_gap": 0,
        "confidence": 0,
        "fraction": 0.5,
        "reference": False,
    },
    "deterministic": True,
    "metrics": {"sinks": []},
    "stop": {"agent_steps_per_policy": 1500},
}
"""Two policies that copy each other, three assignments each, and their evaluations."""

IMPATIENT = Patience(
    heartbeat_s=0.05, liveness_s=3.0, start_s=1e6, stall_s=10.0, grace_s=3.0, resend_s=0.1
)
IMPATIENT_LEARNER = LearnerPatience(
    hello_s=(0.02, 0.2), resend_s=(0.05, 0.4), liveness_s=5.0, grace_s=3.0
)


class SharedWork:
    """Carries out what any learner of this process is given. One at a time: it is one thing."""

    device = "cpu"

    def __init__(self, learner: SimulatedLearner, *, pause_s: float = 0.0) -> None:
        self._learner = learner
        self._pause_s = pause_s
        self._lock = threading.Lock()
        self._never = threading.Event()

    def make(
        self, setup: LearnerSetup, *, progress: Progress, should_stop: Callable[[], bool]
    ) -> SharedWork:
        """See `MakeWork`."""
        del setup, progress, should_stop
        return self

    def carry_out(self, assignment: Assignment) -> Finished | Failed:
        """See `Work`."""
        self._never.wait(self._pause_s)  # the simulated duration of work
        with self._lock:
            return self._learner.carry_out(assignment)[0]

    def close(self) -> None:
        """See `Work`."""


@dataclass(slots=True)
class Crew:
    """Learners in threads; whoever ends is replaced as long as the run goes on.

    Attributes:
        setup: Of all.
        endpoint: Where they connect to.
        work: What they do.
        is_ending: Whether the controller says stop to everybody by now.
        codes: Exit codes, in order of ending.
    """

    setup: LearnerSetup
    endpoint: str
    work: SharedWork
    is_ending: Callable[[], bool]
    codes: list[tuple[LearnerId, int]] = field(default_factory=list)
    _loops: dict[int, LearnerLoop] = field(default_factory=dict)
    _threads: list[threading.Thread] = field(default_factory=list)
    _is_over: threading.Event = field(default_factory=threading.Event)

    def start(self, size: int) -> None:
        """Hire so many."""
        for place in range(size):
            thread = threading.Thread(target=self._serve, args=(place,), name=f"crew-{place}")
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Send everybody home and wait for them."""
        self._is_over.set()
        for loop in list(self._loops.values()):
            loop.request_stop("the run is over")
            loop.request_stop("the run is over")
        for thread in self._threads:
            thread.join()

    def _serve(self, place: int) -> None:
        number = 0
        while not self._is_over.is_set() and not (number and self.is_ending()):
            number += 1
            learner = LearnerId(f"learner-{place}-{number}")
            loop = LearnerLoop(
                self.setup,
                ZmqLearnerTransport(self.endpoint, run=self.setup.run, learner=learner),
                (),
                learner=learner,
                make_work=self.work.make,
                patience=IMPATIENT_LEARNER,
            )
            self._loops[place] = loop
            if self._is_over.is_set():
                loop.request_stop("the run is over")
            self.codes.append((learner, loop.run()))


@dataclass(slots=True, kw_only=True)
class Conversation:
    """A run that is served to its end.

    Attributes:
        run_dir: Its directory.
        open_run: Journal and state.
        server: The controller's.
        crew: Its learners.
        proxy: Between them, if there is one.
        watchers: Told of every commit.
    """

    run_dir: Path
    open_run: OpenRun
    server: Server
    crew: Crew
    proxy: ChaosProxy | None
    watchers: list[Callable[[Sequence[Row]], None]]


@contextlib.contextmanager
def conversation(
    run_dir: Path,
    *,
    plan: Plan | None = None,
    patience: Patience = IMPATIENT,
    document: Mapping[str, object] = DOCUMENT,
    learners: int = 2,
    pause_s: float = 0.0,
    utc: Callable[[], str] = utc_now,
) -> Iterator[Conversation]:
    """A new run with its learners, who wait for ``server.run()``, which is for the caller."""
    run_dir.mkdir()
    config = validate_config(dict(document))
    run_file = new_run_file(config, duel_spec(), name="test", launch_directory=".")
    create_run(run_dir, run_file, initial_weights={}, utc=UTC)
    watchers: list[Callable[[Sequence[Row]], None]] = []

    def tell(rows: Sequence[Row]) -> None:
        for watch in watchers:
            watch(rows)

    with contextlib.ExitStack() as stack:
        run = stack.enter_context(OpenRun(run_dir, patience=patience))
        transport = ZmqControllerTransport("tcp://127.0.0.1:*", run=run_file.run, epoch=1)
        stack.callback(transport.close, linger_s=0.5)
        proxy = None
        if plan is not None:
            proxy = stack.enter_context(ChaosProxy(plan, controller=transport.endpoint))
        work = SharedWork(publishing_learner(run_file, run.setup), pause_s=pause_s)
        crew = Crew(
            run.setup,
            proxy.endpoint if proxy is not None else transport.endpoint,
            work,
            lambda: run.state.phase.name in ("stopping", "over"),
        )
        server = Server(
            run_dir=run_dir,
            state=run.state,
            journal=run.journal,
            transport=transport,
            launcher=NoLauncher(),
            on_commit=tell,
            utc=utc,
        )
        stack.callback(crew.stop)
        crew.start(learners)
        yield Conversation(
            run_dir=run_dir,
            open_run=run,
            server=server,
            crew=crew,
            proxy=proxy,
            watchers=watchers,
        )
