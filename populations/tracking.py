"""The process of a tracker: ``python -m populations.tracking``.

It reads what the run has written, ``metrics.jsonl`` and the journal, and reports its progress to
the controller on a pipe, as the process of hooks does. If the tracker raises, the process ends and
is started again: it then asks the tracker which points it has already. It does not import torch.

Tests: `tests/integration/test_trackers.py`.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Generator
from contextlib import closing
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, cast

from arena.errors import ConfigError
from arena.metrics.jsonl import numbered_lines
from arena.metrics.sink import METRICS_FILE
from arena.metrics.tracker import Note, Point, TrackedRun, Tracker
from arena.processes.parent import Child
from arena.users_code import named, pass_interrupt
from populations.config.run_file import RUN_FILE, RunFile, learner_setup
from populations.hooks.process import (
    Control,
    Report,
    TrackerSettings,
    serve_controller,
)
from populations.records.games import worst_games
from populations.records.rows import EventRow
from populations.storage.database import JOURNAL
from populations.storage.journal import JournalReader
from populations.views.sentences import event_document

POLL_S = 1.0
"""Seconds between two checks for new lines and events of the run."""

PAGE = 500
"""Maximum number of points, and of notes, that are handed to the tracker at once."""

NOTED = ("alert", "alert_cleared", "champion", "exploited")
"""Kinds of events that become notes."""

GAME_EVERY_S, GAME_S = 3600.0, 90.0
"""Seconds between two games that are shown, and the time limit for rendering a game."""

NICENESS = 10
"""Niceness of this process, so that the run has priority where cores are few."""

_SECRET = re.compile("KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
_USER_OF_URL = re.compile(r"//[^/@\s]+@")


def serve(settings: TrackerSettings, control: Control, report: Report) -> None:
    """Hand points and notes to the tracker until the run is over and none is left.

    Raises:
        ConfigError: If the tracker raises.
    """
    os.nice(NICENESS)
    try:
        _serve(settings, control, report)
    except BaseException as error:
        # The code of a tracking tool may raise anything.
        pass_interrupt(error)
        print(redacted(traceback.format_exc()), file=sys.stderr)  # noqa: T201 (stderr is the log)
        raise ConfigError(redacted(f"{settings.tracker} raised {named(error)}")) from None


def _serve(settings: TrackerSettings, control: Control, report: Report) -> None:
    name, run_dir = settings.tracker, Path(settings.run_dir)

    def begin(number: int) -> None:
        report(begun=[number, name], at_s=time.monotonic())

    begin(0)
    tracker = open_tracker(name, tracked_run(run_dir))
    number, sequence, games = tracker.reached()
    problem, has_points, due_s = "", False, time.monotonic() + GAME_EVERY_S
    # This report does not clear an earlier problem: a tracker that opens may still refuse every
    # point, so the problem ends only after the first successful write.
    report(ready=True)
    with (
        closing(points_of(run_dir / METRICS_FILE, after=number)) as written,
        JournalReader(run_dir / JOURNAL) as reader,
    ):
        while True:
            # Check whether the run is over before reading, so that nothing that it wrote until its
            # end is missed.
            is_over = control.backlog_s is not None
            points = [*islice(iter(written.__next__, None), PAGE)]
            notes = [_note(row) for row in reader.events(after=sequence, kinds=NOTED, limit=PAGE)]
            if points or notes:
                begin(points[-1].number if points else notes[-1].sequence)
                tracker.write(points, notes)
                # A problem with showing games stays reported until a game has been shown.
                report(**({"ready": True} if problem else {"ended": name, "problem": ""}))
                sequence = notes[-1].sequence if notes else sequence
                has_points = has_points or bool(points)
            elif has_points and (is_over or time.monotonic() >= due_s):
                has_points, due_s = False, time.monotonic() + GAME_EVERY_S
                if (game := _worst_game(reader, run_dir, games)) is not None:
                    begin(0)
                    problem = _show(tracker, game, settings)
                    report(ended=name, problem=problem)
                    games |= set() if problem else {game}
            elif is_over:
                begin(0)
                tracker.close()
                report(ended=name, problem=problem)
                return
            else:
                control.woken.wait(POLL_S)


def _worst_game(reader: JournalReader, run_dir: Path, known: frozenset[str]) -> str | None:
    """Return the worst game of a champion that is not in ``known``; None if there is none."""
    tables = reader.load(pairs=())
    champions = [str(row.champion) for row in tables.ratings.values() if row.champion]
    seats = learner_setup(RunFile.load(run_dir / RUN_FILE), root=run_dir).seats
    worst = worst_games(tables.games.values(), champions, seats=seats)
    return next((row.game for row in worst if row.game not in known), None)


def _show(tracker: Tracker, game: str, settings: TrackerSettings) -> str:
    """Render a game as a page and show it; return what went wrong, empty if nothing did."""
    with tempfile.TemporaryDirectory(prefix="arena-game-") as place:
        page = Path(place) / f"{game}.html"
        module, *given = settings.replay_command
        given += [settings.run_dir, "--id", game, "--to", str(page)]
        with Child(module, given, log="temporary", talks="output") as child:
            _, code = child.ask(b"", GAME_S)
            if code is None:
                return f"game {game} took more than {GAME_S:g} s to be told"
            if code:
                return redacted(f"game {game}: {child.last_line}")
        tracker.show(game, page)
    return ""


def open_tracker(name: str, run: TrackedRun) -> Tracker:
    """Import a tracker, which takes seconds, and continue the run in it."""
    module = import_module(f"arena.metrics.{name}_tracker")
    tracker: Tracker = getattr(module, f"{name.capitalize()}Tracker")(run)
    return tracker


def points_of(path: Path, *, after: int) -> Generator[Point | None, None, None]:
    """Yield the points that the tracker does not have yet; None when no further line is there.

    A metric that is written again at the same step, as at the end of a run, is left out if its
    value is unchanged. To know that, all lines are read, also those that the tracker has.

    Args:
        path: File of metrics, which the run appends to.
        after: Number of the last point that the tracker has.
    """
    last: dict[tuple[str, str], tuple[int, float]] = {}
    for numbered in numbered_lines(path):
        if numbered is None:
            yield None
            continue
        number, line = numbered
        policy, steps = line.pop("policy"), line.pop("agent_steps")
        now = {(policy, name): (steps, value) for name, value in line.items()}
        new = {key[1]: one[1] for key, one in now.items() if last.get(key) != one}
        last |= now
        if number > after and new:
            yield Point(number, policy, steps, new)


def _note(row: EventRow) -> Note:
    # A note replaces the earlier one with its subject, so a champion's subject is its population.
    key = row.data.get("population") if row.kind == "champion" else None
    text = str(event_document(row)["sentence"])
    return Note(row.sequence, cast(Any, row.kind), str(key or row.subject), text)


def tracked_run(run_dir: Path) -> TrackedRun:
    """Return what trackers may know about a run.

    Only settings without secrets are included: arguments of hooks, for example, may contain one.
    """
    file = RunFile.load(run_dir / RUN_FILE)
    facts: dict[str, object] = {"environment": file.spec.id, "seed": file.config.seed}
    for population, section in file.config.populations.items():
        facts[f"{population}.size"] = section.size
        for name, value in section.start_values.items():
            facts[f"{population}.{name}"] = value
    return TrackedRun(id=file.run, name=file.name, directory=run_dir, facts=facts)


def redacted(text: str) -> str:
    """Return a text without the values of secret environment variables and without URLs' users."""
    for name, value in os.environ.items():
        # A shorter value would also match within ordinary words.
        if _SECRET.search(name) and len(value) >= 6:
            text = text.replace(value, "***")
    return _USER_OF_URL.sub("//***@", text)


if __name__ == "__main__":
    raise SystemExit(serve_controller(TrackerSettings, serve))
