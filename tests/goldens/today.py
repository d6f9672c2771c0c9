"""All that the goldens of this directory know of today's classes, beside `conversations.today`.

Whoever changes those classes changes this file, in a commit of its own, and no stored document.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from arena.envs.batched.batch import GameBatch
from arena.envs.stepped import PettingZooBatch
from arena.wire.codec import decode
from arena.wire.session import ControllerSession
from populations.config.run_config import validate_config
from populations.hooks.make import make_hook_processes
from populations.records.aggregates import Row
from populations.records.tables import Tables
from populations.storage.journal import Journal
from populations.storage.lock import RunLock
from tests.goldens.forms import Document
from tools.web.export import files_of
from tools.web.runs import named_runs
from tools.web.site import Site

STEP_S = 0.004
"""Seconds that a step of a batch of environments takes."""

CORES = 2

PATIENT = {"time_limit_s": 60.0, "queue": 1000}
"""Settings of hooks of which none is dropped or given up under load."""


@contextmanager
def counted_time() -> Iterator[None]:
    """Let time move by steps of batches of environments alone, on a machine of two cores."""
    now_s = 100.0
    with pytest.MonkeyPatch.context() as patch:
        for kind in (PettingZooBatch, GameBatch):

            def step(env: Any, *arguments: Any, usual: Any = kind.step) -> Any:
                nonlocal now_s
                now_s += STEP_S
                return usual(env, *arguments)

            patch.setattr(kind, "step", step)
        for clock in ("monotonic", "perf_counter"):
            patch.setattr(time, clock, lambda: now_s)
        patch.setattr(os, "sched_getaffinity", lambda pid: set(range(CORES)))
        yield


class Door:
    """The controller's end of the wire: what comes of frames of a peer."""

    def __init__(self, *, run: str, epoch: int) -> None:
        self._session = ControllerSession(run=run, epoch=epoch)

    def hear(self, identity: bytes, frames: list[bytes], *, now_s: float) -> Document:
        """Return which message is taken, what is noted, and what the peer is answered."""
        opened = self._session.open(identity, frames, now_s=now_s)
        found: Document = {}
        if opened is not None and not isinstance(opened, list):
            found["taken"] = type(opened).__name__
        for bad in self._session.take_bad_messages():
            found["noted"] = {"peer": bad.peer, "kind": bad.kind, "reason": bad.reason}
        if isinstance(opened, list):
            header, answer = decode(opened)
            found["answered"] = {
                type(answer).__name__: structs.asdict(answer),
                "to": str(header.learner),
            }
        return found

    @property
    def counts(self) -> dict[str, int]:
        """Number of messages that were dropped, by kind."""
        return dict(self._session.num_bad)


def _rows(table: str, **changes: Any) -> Callable[[Tables], list[Row]]:
    """The last row of a table with other values, each a value or a function of the old one."""

    def change(tables: Tables) -> list[Row]:
        rows = getattr(tables, table)
        row = list(rows.values())[-1] if isinstance(rows, dict) else rows
        made = {
            name: new(getattr(row, name)) if callable(new) else new for name, new in changes.items()
        }
        return [replace(row, **made)]

    return change


def _kind(tables: Tables, kind: str) -> Any:
    return next(row for row in tables.pairs.values() if row.kind == kind)


def _more(value: Any) -> Any:
    return value + 1


WRONG_ROWS: Mapping[str, Callable[[Tables], list[Row]]] = {
    "one agent step more of the run": _rows("run", agent_steps=_more),
    "one match more of the run": _rows("run", matches=_more),
    "one assignment more of the run": _rows("run", assignments_finished=_more),
    "one copy more of the run": _rows("run", exploits=_more),
    "an assignment's number that is given out again": _rows("run", next_assignment=2),
    "a run of another id": _rows("run", run="another"),
    "one agent step more of a policy": _rows("policies", agent_steps=_more),
    "another generation of a policy": _rows("policies", generation=_more),
    "a policy with a checkpoint that was never recorded": _rows("policies", checkpoint="a/b"),
    "a policy without a checkpoint": _rows("policies", checkpoint=None),
    "a checkpoint with another digest": _rows("checkpoints", digest="0" * 64),
    "a checkpoint of other weights": _rows("checkpoints", weights_digest="0" * 64),
    "a checkpoint of another generation": _rows("checkpoints", generation=_more),
    "a checkpoint with more agent steps": _rows("checkpoints", agent_steps=10**6),
    "a checkpoint with more updates": _rows("checkpoints", learner_updates=_more),
    "a checkpoint of another parent": _rows("checkpoints", parent="0" * 64),
    "a checkpoint in use that is marked for removal": _rows("checkpoints", state="doomed"),
    "a ghost of other weights": _rows("ghosts", weights_digest="0" * 64),
    "a ghost of a checkpoint that was never recorded": _rows("ghosts", checkpoint="a/b"),
    "a ghost with other agent steps": _rows("ghosts", agent_steps=_more),
    "a ghost of another policy": _rows("ghosts", policy="player/p009"),
    "a record with one win more": _rows("records", wins=_more),
    "a record with other returns": _rows("records", return_sum=_more),
    "a record with fewer matches": _rows("records", matches=0),
    "a result of training with more wins": lambda tables: [
        replace(_kind(tables, "train"), wins=99.0)
    ],
    "a result of evaluation with more losses": lambda tables: [
        replace(_kind(tables, "evaluate"), losses=99.0)
    ],
    "a result of evaluation with other returns": lambda tables: [
        replace(_kind(tables, "evaluate"), second_return_sum=99.0)
    ],
    "ratings of nobody": _rows("ratings", entrants=()),
    "ratings without deviations": _rows("ratings", deviations=()),
    "ratings that were not fitted": _rows(
        "ratings", ratings=lambda old: tuple(one and one + 50.0 for one in old)
    ),
    "ratings of more results than there are": _rows("ratings", num_tallies=10**6),
    "a generation of another parent": _rows("generations", parent="player/p009"),
    "a generation that ends before it begins": _rows("generations", agent_steps_begin=10**6),
}
"""Rows that say something else than the others do, though each is sound."""

BAD_ROWS = {
    "run": "UPDATE run SET elapsed_s = elapsed_s + 1",
    "policies": "UPDATE policies SET rescues = rescues + 1 WHERE rowid = 1",
    "checkpoints": "UPDATE checkpoints SET pinned = 1 WHERE rowid = 1",
    "ghosts": "UPDATE ghosts SET quality = quality + 1 WHERE rowid = 1",
    "generations": "UPDATE generations SET copies = 7 WHERE rowid = 1",
    "assignments": "UPDATE assignments SET agent_steps = agent_steps + 1 WHERE rowid = 2",
    "results": "UPDATE tallies SET assignment_id = assignment_id + 1 WHERE rowid = 3",
    "records": "UPDATE records SET wins = wins + 1 WHERE rowid = 1",
    "pairs": "UPDATE pairs SET losses = losses * 2 + 1 WHERE rowid = 1",
    "ratings": "UPDATE ratings SET ratings = zeroblob(length(ratings))",
    "events": "UPDATE events SET data = '{}' WHERE rowid = 1",
    "text": "UPDATE events SET kind = CAST(X'ff6e' AS TEXT) WHERE rowid = 1",
    "no run": "DELETE FROM run",
    "no policy": "DELETE FROM policies WHERE rowid = 1",
    "no checkpoint": "DELETE FROM checkpoints WHERE rowid = 1",
    "no ghost": "DELETE FROM ghosts WHERE rowid = 1",
    "no generation": "DELETE FROM generations WHERE rowid = 1",
    "no assignment": "DELETE FROM assignments WHERE rowid = 2",
    "no result": "DELETE FROM tallies WHERE rowid = 3",
    "no record": "DELETE FROM records WHERE rowid = 1",
    "no pair": "DELETE FROM pairs WHERE rowid = 1",
    "no event": "DELETE FROM events WHERE rowid = 3",
    "a newer format": "PRAGMA user_version = 99",
    "no table": "DROP TABLE records",
}
"""Rows that a disk has changed or lost, by what is damaged."""


def damage_rows(run: Path, what: str) -> None:
    """Put one wrong row into a run, or damage one."""
    path = run / "journal.db"
    if what in WRONG_ROWS:
        with Journal.open(path) as journal:
            journal.commit(WRONG_ROWS[what](journal.load()))
        return
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(BAD_ROWS[what])
        connection.commit()


def call_hooks(run: Path, hooks: Mapping[str, Any]) -> None:
    """Call hooks for all events of a run, as a controller's process does."""
    config = validate_config({"environment": {"id": "golden:env"}, "hooks": {**hooks, **PATIENT}})
    (process,) = make_hook_processes(
        config, run, launch_directory=".", command=(), num_events=0, is_new=True
    )
    trouble = [told for told in process.finish() if told.what]
    assert trouble == [], trouble


def held(run: Path) -> AbstractContextManager[object]:
    """Hold a run as a controller does that is going on."""
    return RunLock(run)


def pages_of(run: Path) -> dict[str, str]:
    """Return the pages of a run as files have them, by name; games have none."""
    files = files_of(Site(named_runs([run]), is_static=True))
    return {name: content.decode() for name, content in files if name.endswith(".html")}
