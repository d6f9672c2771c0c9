"""Supervisor of a process of hooks, in the controller: it starts, restarts and ends the process.

The controller never waits for the process, except at the end of a run, for a bounded time.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from arena.errors import ConfigError
from arena.processes.parent import Child
from populations.config.sections import AlertKind
from populations.hooks.findings import Finding
from populations.hooks.process import HookSettings, ProcessSettings
from populations.records.rows import Json

logger = logging.getLogger(__name__)

MODULE = "populations.hooks.process"
WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
"""First and longest pause before a restart; each failure in a row doubles the pause."""

SLACK_S = 5.0
"""Time beyond a call's limit after which the supervisor ends the process."""

SILENT_S = 1.0
"""Time for which the end of a run waits before the user is notified."""

CHECK_S = 120.0


@dataclass(slots=True)
class _Process:
    """Running process.

    Attributes:
        child: Handle of the process.
        call: Sequence and name of the call in progress; None: no call is in progress.
        call_at_s: Time when that call began.
        finished: Whether the process reported that no call is pending and the run is over.
        broken: Reported reason why the process cannot begin; empty: none.
    """

    child: Child
    call: tuple[int, str] | None = None
    call_at_s: float = 0.0
    finished: bool = False
    broken: str = ""


@dataclass(slots=True)
class HookProcess:
    """Process that calls the hooks of a run. Owned by one thread.

    Attributes:
        settings: Settings of the process.
        module: Module that the process runs.
        name: Name of its calls in messages, and of its log file in the run's logs.
        alert: Kind of the alert about hooks that fail.
        subject: Subject of that alert if the process itself fails; empty: all hooks.
        end_s: Longest time that the end of a run waits for the process.
        num_ends: Number of hooks ``on_end``, each of which has a full time limit at the end.
        clock: Monotonic clock, in seconds.
    """

    settings: ProcessSettings
    module: str = MODULE
    name: str = "hooks"
    alert: AlertKind = "hook_failed"
    subject: str = ""
    end_s: float = 0.0
    num_ends: int = 0
    clock: Callable[[], float] = time.monotonic
    _process: _Process | None = None
    _skip: tuple[int, str] | None = None
    _wait_s: float = WAIT_S
    _retry_at_s: float = float("-inf")
    _failing: set[str] = field(default_factory=set)
    _well: set[str] = field(default_factory=set)
    """Hooks with a reported result. A first success is reported, as an old alert may be active."""
    _told: list[Finding] = field(default_factory=list)
    _end_at_s: float | None = None

    @property
    def pid(self) -> int | None:
        """Return the id of the process; None while there is no process."""
        return None if self._process is None else self._process.child.pid

    def poll(self) -> list[Finding]:
        """Receive reports of the process, restart it if it has ended; return new findings."""
        if self._process is None:
            if self.clock() >= self._retry_at_s:
                self._start()
        else:
            self._hear(self._process)
            self._watch(self._process)
        told, self._told = self._told, []
        return told

    def finish(
        self,
        *,
        wait: Callable[[float], None] = time.sleep,
        on_wait: Callable[[str, float], None] = lambda name, most_s: None,
    ) -> list[Finding]:
        """Wait until the calls of the run's end are made, for a bounded time; return findings.

        Args:
            wait: Function that sleeps.
            on_wait: Function that is called once, after `SILENT_S`, with the name and with the
                longest remaining time in seconds.
        """
        told: list[Finding] = []
        is_silent = True
        begin_s = self.clock()
        self._end_at_s = begin_s + self.end_s
        # A process that waits for a restart after a failure gets another chance at once.
        self._retry_at_s = float("-inf")
        if self._process is not None:
            self._tell_end(self._process)
        while self.clock() < self._end_at_s:
            told += self.poll()
            if self._process is None and self._retry_at_s == float("inf"):
                break
            if is_silent and self.clock() - begin_s >= SILENT_S:
                is_silent = False
                on_wait(self.name, self._end_at_s - self.clock())
            wait(0.02)
        else:
            logger.warning(
                "%s: not all calls were made %g s after the run; a resume makes the rest",
                self.name,
                self.end_s,
            )
        self.close()
        return told

    def close(self) -> None:
        """Kill the process at once, with all processes that it has started."""
        process, self._process = self._process, None
        if process is not None:
            process.child.close()

    def _start(self) -> None:
        try:
            settings = self.settings.model_copy(update={"skip": self._skip})
            log = Path(settings.run_dir) / "logs" / f"{self.name}.log"
            child = _started(self.module, settings, log=log)
        except OSError as error:
            self._fail("", f"the process of {self.name} could not be started: {error}")
            return
        child.tell(settings.model_dump_json().encode())
        self._process = _Process(child)
        if self._end_at_s is not None:
            self._tell_end(self._process)

    def _tell_end(self, process: _Process) -> None:
        """Notify the process that the run is over, with the time left for pending calls."""
        assert self._end_at_s is not None
        backlog_s = self._end_at_s - self.clock() - self.num_ends * self.settings.time_limit_s
        process.child.tell(str(max(backlog_s, 0.0)).encode())

    def _hear(self, process: _Process) -> None:
        # A process that was killed may leave an incomplete line, which raises ValueError.
        with contextlib.suppress(ValueError):
            for line in process.child.events():
                self._take(process, json.loads(line))

    def _take(self, process: _Process, said: Mapping[str, Json]) -> None:
        match said:
            case {"begun": [int(sequence), str(name)], "at_s": float(at_s)}:
                # The call is remembered beyond its end: if a full disk prevented the record of it,
                # a restarted process must skip it.
                process.call = self._skip = (sequence, name)
                process.call_at_s = at_s
            case {"ended": str(name), "problem": str(problem)}:
                process.call = None
                self._wait_s = WAIT_S
                self._judge(self.subject, "")
                self._judge(name, problem)
            case {"ready": True}:
                process.call = None
            case {"dropped": int(dropped)}:
                self._judge("", "")  # the process itself works
                what = f"{dropped} calls were dropped since the run began" if dropped else ""
                self._told.append(Finding("hooks_behind", "", "", what))
            case {"broken": str(reason)}:
                process.broken = reason
            case {"finished": True}:
                process.finished = True

    def _judge(self, name: str, problem: str) -> None:
        """Add a finding that a hook failed, or that it works, if that is new."""
        if problem:
            logger.warning("hook %s failed: %s", name, problem)
            self._failing.add(name)
        elif name not in self._failing and name in self._well:
            return
        else:
            self._failing.discard(name)
        self._well.add(name)
        self._told.append(Finding(self.alert, name, name, problem))

    def _watch(self, process: _Process) -> None:
        """Detect that the process has ended or hangs, and plan its restart."""
        limit_s = self.settings.time_limit_s
        hung_s = self.clock() - process.call_at_s
        if process.child.poll() is None and (process.call is None or hung_s <= limit_s + SLACK_S):
            return
        self._hear(process)  # the last reports before its end
        process.child.close()
        self._process = None
        code = process.child.poll()
        if process.finished:
            # All calls are made, so no restart is needed.
            self._retry_at_s = float("inf")
        elif process.broken:
            self._fail("", process.broken)
        elif process.call is not None:
            took_too_long = hung_s >= limit_s
            what = (
                f"it took longer than its time limit, {limit_s:g} s"
                if took_too_long
                else f"its process ended with code {code}"
            )
            self._fail(process.call[1], f"{what} (event {process.call[0]})")
        else:
            self._fail("", f"the process of {self.name} ended with code {code}")

    def _fail(self, name: str, problem: str) -> None:
        self._judge(name or self.subject, problem)
        # At the end of a run a call's failure needs no pause, and a process that cannot begin is
        # not tried again.
        pause_s = self._wait_s if self._end_at_s is None else 0.0 if name else float("inf")
        self._retry_at_s = self.clock() + pause_s
        self._wait_s = min(2.0 * self._wait_s, LONGEST_WAIT_S)


def _started(
    module: str,
    settings: ProcessSettings,
    arguments: Sequence[str] = (),
    *,
    log: Path | Literal["temporary"],
) -> Child:
    # With the interpreter's directory, commands find ``arena`` without an active environment.
    paths = [os.environ.get("PATH", os.defpath), os.path.dirname(sys.executable)]
    place = settings.launch_directory
    return Child(
        module,
        arguments,
        log=log,
        talks="output",
        # A run may be resumed after its launch directory was removed.
        directory=place if Path(place).is_dir() else None,
        variables={"PATH": os.pathsep.join(paths)},
    )


def check_hooks(settings: HookSettings) -> None:
    """Check that all hooks can be called, in a process of its own.

    Raises:
        ConfigError: If a hook cannot be called; the message names all such hooks.
    """
    if not settings.hooks:
        return
    with _started(MODULE, settings, ["--check"], log="temporary") as child:
        lines, code = child.ask(settings.model_dump_json().encode(), CHECK_S)
        said = "\n".join(child.last_lines())[-1000:]
    if code is None:
        raise ConfigError(f"hooks: importing them took longer than {CHECK_S:g} s")
    try:
        faults = json.loads(b"".join(lines))
    except ValueError as error:
        # A module may end the interpreter at its import, so that no JSON is printed.
        raise ConfigError(f"hooks: importing them failed: {said}") from error
    if faults:
        raise ConfigError("; ".join(faults))
