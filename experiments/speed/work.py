"""Count the work of a controller's decisions, which no other process on the machine disturbs.

    python -m experiments.speed.work

Prints a line of JSON: for leagues of 40 and 160 policies after an hour, and of 40 after a week, how
many Python lines of Arena are executed, how many of its functions are called (each resumption of a
generator is a call) and how many SQL statements are run for one

- ``training`` and ``evaluation``: its result is taken in, and the learner gets its next assignment;
- ``heartbeat`` of a learner that is at work;
- ``pbt``: the transaction in which a decision waits for new hyperparameters, and the next one,
  in which they are taken in. Choosing them is another thread's work, and not counted.

All from the bytes of what a learner says to the bytes of the answer: decoding, deciding, a commit
to a journal on disk, encoding. Medians of ``NUMBER`` decisions each. An hour's rows are those that
the demo's rate makes; a week's are as many as `experiments.load.month` has after a week, because
thinning and merges leave no more.

Work inside of numpy and SQLite is not counted: `experiments.speed.beside` has times, too. This
module knows classes as they are now; whoever moves them adapts `measure`, and leaves the kinds, the
leagues and what counts as the work of one as they are.
"""

from __future__ import annotations

import os
import sqlite3
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import arena
import populations
from arena.types import LearnerId
from arena.wire.codec import decode, encode
from arena.wire.messages import Header, Heartbeat, Message
from experiments.harness import say
from experiments.planted_league.week import DAY, Size, all_rows, make_long_league
from populations.controller.machine import handle
from populations.controller.state.events import (
    AssignmentFinished,
    Event,
    ExploreHyperparameters,
    HeartbeatReceived,
    HyperparametersExplored,
    Now,
    SendMessage,
)
from populations.controller.state.state import ControllerState
from populations.controller.state.transaction import Transaction
from populations.simulation.world import World, start
from populations.storage.database import JOURNAL
from populations.storage.journal import Journal

HOUR = 8 * DAY.checkpoints // 24
"""Checkpoints of all policies in an hour at the demo's rate."""

WEEK = Size(checkpoints=60, evaluated_every=4, generations_every=1, met=2, keep=512)
"""A week's rows of 40 policies: 2,400 checkpoints and generations, 480 ghosts, 600 evaluated."""

LEAGUES = {
    "40, an hour": (40, replace(DAY, checkpoints=HOUR // 40, keep=512)),
    "160, an hour": (160, replace(DAY, checkpoints=HOUR // 160, keep=512)),
    "40, a week": (40, WEEK),
}
CHANGES = ("pbt.ready_agent_steps=40000", "pbt.ready_growth=0")
"""A decision of PBT is due after two assignments."""

KINDS = ("training", "evaluation", "heartbeat", "pbt")
NUMBER = 9
WARM = 3
"""Decisions of each kind that come first, which fill caches."""

HEADER = Header(run="0" * 32, epoch=1, learner=LearnerId("learner-1"), sequence=1)


@dataclass(slots=True)
class Work:
    """Work that was counted."""

    lines: int = 0
    calls: int = 0
    statements: int = 0

    def __add__(self, other: Work) -> Work:
        """Return the sum of both."""
        pairs = zip(asdict(self).values(), asdict(other).values(), strict=True)
        return Work(*(one + two for one, two in pairs))


class Counter:
    """Counter of the work of this thread, on code in some directories and on databases.

    Args:
        directories: Directories of the code that counts.
    """

    def __init__(self, *directories: Path) -> None:
        self._places = tuple(f"{directory}{os.sep}" for directory in directories)
        self._work: Work | None = None

    @contextmanager
    def counting(self) -> Iterator[Work]:
        """Count what functions do that are called in the block."""
        tracer, self._work = sys.gettrace(), Work()
        sys.settrace(self._enter)
        try:
            yield self._work
        finally:
            sys.settrace(tracer)
            self._work = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count statements on every connection that is opened in the block."""
        connect = sqlite3.connect

        def watched(*arguments: Any, **options: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = connect(*arguments, **options)
            connection.set_trace_callback(self._run)
            return connection

        with patch("sqlite3.connect", watched):
            yield

    def _enter(self, frame: FrameType, event: str, value: object) -> Any:
        if self._work is None or not frame.f_code.co_filename.startswith(self._places):
            return None
        self._work.calls += 1
        return self._step

    def _step(self, frame: FrameType, event: str, value: object) -> Any:
        if self._work is not None and event == "line":
            self._work.lines += 1
        return self._step

    def _run(self, statement: str) -> None:
        if self._work is not None:
            self._work.statements += 1


def measure(num_policies: int, size: Size) -> dict[str, dict[str, int]]:
    """Return the work of a decision of each kind in a league with a past."""
    counter = Counter(*(Path(package.__path__[0]) for package in (arena, populations)))
    world = make_long_league(size, num_policies=num_policies, changes=CHANGES)
    found: defaultdict[str, list[Work]] = defaultdict(list)
    asking: list[Work] = []

    def counted(state: ControllerState, event: Event, now: Now) -> Transaction:
        message = _message(event)
        frames = None if message is None else encode(HEADER, message)
        with counter.counting() as work:
            if frames is not None:
                decode(frames)
            tx = handle(state, event, now)
            if tx.rows:
                journal.commit(tx.rows)
            for command in tx.commands:
                if isinstance(command, SendMessage):
                    encode(HEADER, command.message)
        if isinstance(event, HyperparametersExplored):
            found["pbt"].append(asking.pop() + work)
        elif questions := sum(isinstance(one, ExploreHyperparameters) for one in tx.commands):
            asking.extend([work] * questions)
        elif isinstance(event, AssignmentFinished):
            found["training" if event.manifests else "evaluation"].append(work)
        elif isinstance(event, HeartbeatReceived):
            found["heartbeat"].append(work)
        return tx

    with (
        tempfile.TemporaryDirectory() as directory,
        counter.watching(),
        Journal.create(Path(directory, JOURNAL), all_rows(world.state.tables)) as journal,
        patch("populations.simulation.world.handle", counted),
    ):
        start(world)
        while min(len(found[kind]) for kind in KINDS) < WARM + NUMBER and world.advance():
            _beat(world)
    return {kind: _median(found[kind][WARM : WARM + NUMBER]) for kind in KINDS}


def _message(event: Event) -> Message | None:
    """Return what a learner said."""
    match event:
        case AssignmentFinished(finished=finished):
            return finished
        case HeartbeatReceived(heartbeat=heartbeat):
            return heartbeat
        case _:
            return None


def _beat(world: World) -> None:
    """Let a learner that is at work say so."""
    for learner, queue in world.given.items():
        if queue and learner in world.state.crew.learners:
            beat = Heartbeat(
                assignment_id=queue[0].assignment_id,
                attempt=queue[0].attempt,
                progress=world._num_planned,
                agent_steps=0,
                rss_bytes=2**28,
            )
            world.handle(HeartbeatReceived(learner=learner, heartbeat=beat))
            return


def _median(works: list[Work]) -> dict[str, int]:
    assert len(works) == NUMBER, f"the league ended after {len(works)} decisions of a kind"
    columns = {name: [asdict(work)[name] for work in works] for name in asdict(Work())}
    return {name: statistics.median_low(column) for name, column in columns.items()}


def figures(leagues: Mapping[str, tuple[int, Size]] = LEAGUES) -> dict[str, int]:
    """Return all figures by league (policies, age), kind of decision and kind of work."""
    return {
        f"{league}: {kind} {name}": count
        for league, (num_policies, size) in leagues.items()
        for kind, counts in measure(num_policies, size).items()
        for name, count in counts.items()
    }


def main() -> None:
    """Count, and print."""
    say(figures())


if __name__ == "__main__":
    main()
