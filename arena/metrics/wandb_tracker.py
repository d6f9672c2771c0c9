"""Runs in Weights & Biases: on its server, or in files alone (``WANDB_MODE=offline``).

A process that is killed loses what wandb had not yet written, up to some seconds. So the files, or
the server, say where one goes on; each process leaves a folder of the same run.

Tests: `tests/integration/test_trackers.py`.
"""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import wandb
from wandb.proto.wandb_internal_pb2 import Record

from arena.metrics.tracker import PROJECT, Note, Point, Reached, TrackedRun, Tracker

FLUSH_S = 5.0
"""Longest time for which wandb holds back what it was given."""

GAME_ID = "game_id"
"""Key of the id of the game that a row has."""

HEADER, BLOCK = 7, 1 << 15
"""Bytes of a file before its records, and of a block; records are cut at the ends of blocks."""

_SEQUENCE = re.compile(r"#([0-9]+) ")


class WandbTracker(Tracker):
    """Tracker that writes into a run of wandb, with folders in ``RUN/wandb``."""

    def __init__(self, run: TrackedRun) -> None:
        self._id, self._directory = run.id, run.directory
        self._known: set[str] = set()
        self._number = 0
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or PROJECT,
            id=run.id,
            name=os.environ.get("WANDB_NAME") or run.name,
            dir=run.directory,
            config=dict(run.facts),
            resume="allow",
            # Only curves are recorded: no arguments, environment, code, repository or output.
            settings=wandb.Settings(
                console="off",
                disable_code=True,
                disable_git=True,
                save_code=False,
                silent=True,
                x_disable_machine_info=True,
                x_disable_meta=True,
                x_disable_stats=True,
                x_save_requirements=False,
                x_transaction_log_flush_interval=FLUSH_S,
            ),
        )

    def reached(self) -> Reached:
        """Return what files, or the server and files, hold."""
        number, sequence, _ = Reached()
        games: dict[str, int] = {}
        for path in self._directory.glob(f"wandb/*run-*-{self._id}/*.wandb"):
            for data in read_records(path):
                record = Record.FromString(data)
                if record.HasField("history"):
                    step = record.history.step.num
                    number = max(number, step)
                    ids = (one for one in record.history.item if one.nested_key[:1] == [GAME_ID])
                    games |= {str(json.loads(one.value_json)): step for one in ids}
                elif record.HasField("alert") and (found := _SEQUENCE.match(record.alert.text)):
                    sequence = max(sequence, int(found[1]))
        # Points in the files may not have reached the server; ``wandb sync`` uploads them.
        number = number if self._run.offline else self._run.step - 1
        return Reached(number, sequence, frozenset(one for one in games if games[one] <= number))

    def write(self, points: Sequence[Point], notes: Sequence[Note]) -> None:
        """Add a row for each point, and alerts; champions and donors are in the summary."""
        for point in points:
            if point.policy not in self._known:
                self._known.add(point.policy)
                steps = f"{point.policy}/agent_steps"
                self._run.define_metric(f"{point.policy}/*", step_metric=steps)
            row = {**point.named(), f"{point.policy}/agent_steps": point.agent_steps}
            # The last point's row stays open, because a game may be added to it.
            self._run.log(row, step=point.number, commit=point is not points[-1])
            self._number = point.number
        for note in notes:
            if note.kind.startswith("alert"):
                level = "WARN" if note.kind == "alert" else "INFO"
                text = f"#{note.sequence} {note.text}"
                self._run.alert(title=note.kind, text=text, level=level, wait_duration=0)
            else:
                self._run.summary[f"{note.kind}/{note.subject}"] = note.text

    def show(self, game: str, page: Path) -> None:
        """Add the page, which wandb copies, to the row of the last point."""
        row = {"game": wandb.Html(page, inject=False), GAME_ID: game}
        self._run.log(row, step=self._number, commit=True)

    def close(self) -> None:
        """Wait until all is written or sent."""
        self._run.finish()


def read_records(path: Path) -> Iterator[bytes]:
    """Yield the records of a file of wandb, up to where a kill has torn it.

    Its format is that of LevelDB's logs: in blocks, parts with checksum, length and type.
    """
    data = path.read_bytes()
    record, place = b"", HEADER
    while place + HEADER <= len(data):
        left = BLOCK - place % BLOCK
        if left < HEADER:
            place += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        part = data[place + HEADER : place + HEADER + length]
        place += HEADER + length
        if not kind or len(part) < length:
            return
        record += part
        # The record is complete, or this is its last part.
        if kind in (1, 4):
            yield record
            record = b""
