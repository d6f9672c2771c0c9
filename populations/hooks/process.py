"""Process that calls hooks: ``python -m populations.hooks.process``.

It reads events from the journal, and reports its calls to the controller. Every process that it
starts ends with it (`arena.processes`): at the time limit of a call, at its own end, and when the
controller has ended. It does not import torch.

Tests: `tests/populations/hooks/test_supervisor.py`.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO, TypeVar, cast

from arena.config import Model
from arena.errors import ConfigError
from arena.export.directory import prune
from arena.processes.child import end_with_guard, serve, take_streams
from arena.resolve import put_first_on_path, resolve
from arena.users_code import named, own_lines, pass_interrupt
from populations.config.hooks import Command, Hook
from populations.hooks.calls import EXPORT, Call, CallQueue, filled, read_place, write_place
from populations.records.rows import Json
from populations.storage.database import JOURNAL
from populations.storage.journal import JournalReader

POLL_S = 0.2
"""Time between two reads of the journal."""

PAGE = 1000
"""Maximum number of events in one read."""

EXPORTS = "exports"
"""Folder of a run directory for exports made every ``checkpoints.export_every_agent_steps``."""

MAX_CHARS = 1000
"""Maximum length of an error that is reported; the log has the full text."""


class ProcessSettings(Model):
    """Settings common to processes of hooks and trackers, which they get as JSON."""

    run_dir: str
    """Absolute path of the run directory."""

    launch_directory: str
    """Directory searched first for modules, and the commands' working directory."""

    time_limit_s: float
    """Time limit of one call."""

    skip: tuple[int, str] | None = None
    """Sequence and name of the last call that an earlier process began; that call and earlier ones
    are not made again. None: there was no earlier process."""


class HookSettings(ProcessSettings):
    """Settings of a process of hooks."""

    hooks: dict[str, tuple[Hook, ...]]
    """Hooks by kind."""

    limit: int
    """Maximum number of pending calls."""

    place: str
    """Name of the file in the run directory that records which calls were made."""

    keep_exports: int | None = None
    """Number of newest exports that are retained for each policy; None: all."""


class TrackerSettings(ProcessSettings):
    """Settings of the process of a tracker."""

    tracker: str
    """Tracker's name in `arena.metrics.tracker.TRACKERS`."""

    replay_command: tuple[str, ...]
    """Module of the command ``arena``, and the arguments for ``arena replay`` of a run."""


SettingsT = TypeVar("SettingsT", bound=ProcessSettings)

Report = Callable[..., None]
"""Function that sends its keyword arguments to the controller as JSON."""


@dataclass(slots=True)
class Control:
    """Messages of the controller, which a thread receives.

    Attributes:
        pipe: Stream on which the controller sends.
        woken: Event that is set with each message.
        backlog_s: Monotonic time until which pending calls may be made, once the run is over; None:
            the run is not over.
    """

    pipe: TextIO
    woken: threading.Event = field(default_factory=threading.Event)
    backlog_s: float | None = None

    def listen(self) -> None:
        """Receive messages until the pipe is closed; each has the seconds for pending calls."""
        for line in self.pipe:
            self.backlog_s = time.monotonic() + float(line)
            self.woken.set()


def serve_hooks(settings: HookSettings, control: Control, report: Report) -> None:
    """Call hooks until the run is over and no call is pending."""
    place_path = Path(settings.run_dir) / settings.place
    place = read_place(place_path)
    if place is None:
        raise ConfigError(f"{place_path} cannot be read")
    queue = CallQueue(
        hooks=settings.hooks,
        run_dir=settings.run_dir,
        limit=settings.limit,
        keep_exports=settings.keep_exports,
        place=place,
    )
    functions = resolved(settings)
    # The process starts in the state "behind", so that it reports once that no calls are dropped:
    # an alert of an earlier process may be active.
    dropped, is_behind = queue.place.dropped, True
    skip = settings.skip or (0, "")
    is_next = settings.skip is None
    with JournalReader(Path(settings.run_dir) / JOURNAL) as reader:
        while True:
            # The end is read before the journal, so that all events committed before it are read.
            ends_s = control.backlog_s
            events = reader.events(after=queue.read, limit=PAGE)
            queue.add(events)
            if ends_s is not None and time.monotonic() >= ends_s and len(events) < PAGE:
                queue.drop_all_but_ends()
            if queue.place.dropped > dropped:
                dropped, is_behind = queue.place.dropped, True
                report(dropped=dropped)
            elif is_behind and len(queue) <= settings.limit // 2:
                is_behind = False
                report(dropped=0)
            call = queue.take()
            if call is None:
                if ends_s is not None and not events:
                    return
                if not events:
                    # Once the run is over, the flag stays set and this returns at once.
                    control.woken.wait(POLL_S)
                continue
            is_next = is_next or call.sequence > skip[0]
            if is_next:
                report(begun=[call.sequence, call.name], at_s=time.monotonic())
                problem = make_call(call, functions, settings)
                report(ended=call.name, problem=problem[:MAX_CHARS])
            is_next = is_next or (call.sequence, call.name) == skip
            queue.record(call)
            write_place(place_path, queue.place)


def resolved(settings: HookSettings) -> dict[str, Callable[[dict[str, Json]], object]]:
    """Import the functions among the hooks, and return them by their references.

    Raises:
        ConfigError: If a function cannot be imported.
    """
    put_first_on_path(settings.launch_directory)
    found = {}
    for kind, hook in _each(settings.hooks):
        if isinstance(hook, str):
            function = resolve(hook, launch_directory=settings.launch_directory)
            if not callable(function):
                raise ConfigError(
                    f"hooks.{kind}: {hook} must be a function, got {type(function).__name__}"
                )
            found[hook] = cast(Callable[[dict[str, Json]], object], function)
    return found


def find_faults(settings: HookSettings) -> list[str]:
    """Return a sentence for each hook that cannot be called here."""
    faults = []
    put_first_on_path(settings.launch_directory)
    for kind, hook in _each(settings.hooks):
        try:
            if isinstance(hook, str):
                resolved(settings.model_copy(update={"hooks": {kind: (hook,)}}))
            elif find_command(hook, settings.launch_directory) is None:
                faults.append(f"hooks.{kind}: there is no command {hook[0]!r}")
        except ConfigError as error:
            text = str(error)
            faults.append(text if text.startswith("hooks.") else f"hooks.{kind}: {text}")
    return faults


def find_command(command: Sequence[str], launch_directory: str) -> str | None:
    """Return the path of a command's program; None if it does not exist."""
    name = command[0]
    # Commands run in the launch directory, so a relative path starts there.
    path = os.path.join(launch_directory, name) if os.sep in name else name
    return shutil.which(path)


def _each(hooks: Mapping[str, Sequence[Hook]]) -> Iterator[tuple[str, Hook]]:
    return ((kind, hook) for kind, some in hooks.items() for hook in some)


def make_call(
    call: Call,
    functions: Mapping[str, Callable[[dict[str, Json]], object]],
    settings: HookSettings,
) -> str:
    """Make one call; return its problem in words, or an empty text if it succeeded."""
    # faulthandler's timer is a C thread, so it also ends a function that never releases the GIL.
    faulthandler.dump_traceback_later(settings.time_limit_s, exit=True)
    try:
        if isinstance(call.hook, str):
            # Each function gets a copy, because it may change its argument.
            functions[call.hook](json.loads(json.dumps(call.document)))
            return ""
        problem = _run(call.hook, call.document)
        if call.kind == EXPORT and not problem and settings.keep_exports is not None:
            to = Path(settings.run_dir) / EXPORTS / str(call.document["to"])
            prune(to.parent, keep=settings.keep_exports)
        return problem
    except BaseException as error:
        # A user's function may raise any exception.
        pass_interrupt(error)
        print(f"{call.name}: event {call.sequence}", file=sys.stderr)  # noqa: T201 a log
        sys.excepthook(type(error), error, error.__traceback__)
        return f"it raised {named(error)}{own_lines(error)}"
    finally:
        faulthandler.cancel_dump_traceback_later()
        sys.stdout.flush()
        sys.stderr.flush()


def _run(command: Command, document: Mapping[str, Json]) -> str:
    done = subprocess.run(
        filled(command, document),
        input=json.dumps(document),
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return ""
    if done.returncode < 0:
        return f"it was ended by signal {-done.returncode}"
    return f"its exit code was {done.returncode}"


def main(argv: Sequence[str] | None = None) -> int:
    """Serve the controller, or with ``--check`` print problems of the hooks as JSON."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--check", action="store_true")
    if parser.parse_args(argv).check:
        serve(_faults)
    return serve_controller(HookSettings, serve_hooks)


def _faults(requests: Iterator[str]) -> Iterator[str]:
    yield json.dumps(find_faults(HookSettings.model_validate_json(next(requests))))


def serve_controller(
    settings_class: type[SettingsT], serve: Callable[[SettingsT, Control, Report], None]
) -> int:
    """Read the settings from the controller's first line, and serve; return the exit code."""
    end_with_guard()
    told, output = take_streams()
    control = Control(told)
    settings = settings_class.model_validate_json(told.readline())
    threading.Thread(target=control.listen, daemon=True).start()

    def report(**what: object) -> None:
        print(json.dumps(what), file=output, flush=True)

    try:
        serve(settings, control, report)
    except ConfigError as error:
        report(broken=str(error)[:MAX_CHARS])
        return 2
    report(finished=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
