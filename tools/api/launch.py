"""Launching of runs from Python, each in a process of ``arena launch``.

Tests: `tests/tools/api/test_launch.py`.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import math
import os
import re
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from arena.errors import AddressInUse, ArenaError, ConfigError, ConfigFaults
from arena.processes.parent import Child
from populations.errors import RunFailed, RunInUse, StorageError
from populations.storage.lock import lock_holder

from ..launch.command import default_run_dir
from ..launch.serving import MAIN
from .runs import Run

LOGGER = logging.getLogger("arena.launch")
"""Logger of the lines that runs print, level INFO."""

MAX_LINES = 1_000
"""Lines that are kept of a run's output."""

STOP_S = 120.0
AT_ONCE_S = 10.0
"""Time for a run to end after a second signal, which saves nothing."""

_STOPPED = (0, 130, 143)
"""Exit codes of runs that ended with everything saved."""

_SWITCHES = frozenset({"resume", "force", "with_hyperparameters", "accept_loss"})
# Commands in backticks are kept as typed, and so are options whose Python argument is named.
_OPTION = re.compile(r"`[^`]*`|--([a-z]+(?:-[a-z]+)*)(?![-a-z]| \(from Python)")
_RENAMED = {"schedule-of": "replay"}
"""Arguments whose options have another name."""


class LaunchedRun(Run):
    """Handle of a run that `launch` started; it shows the run as `Run` does.

    The run is a process of its own, ``arena launch``. It goes on when the handle is forgotten, is
    stopped when this process ends, and stops by itself if this process is killed. As a context
    manager, the handle stops the run at the end of the block.
    """

    def __init__(self, run_dir: str | os.PathLike[str], arguments: Sequence[str]) -> None:
        super().__init__(run_dir)
        self._lines: deque[str] = deque(maxlen=MAX_LINES)
        self._owner = os.getpid()
        self._is_asked = False
        # The reader thread must not stop: a run whose output has no reader stops.
        self._process = Child(MAIN, ["launch", *arguments], dies_with_parent=False, talks="errors")
        self._reader = threading.Thread(target=self._read, name="arena-launch", daemon=True)
        self._reader.start()
        _RUNNING.add(self)

    @property
    def pid(self) -> int:
        """Process id of the run's controller."""
        return self._process.pid

    @property
    def output(self) -> list[str]:
        """Lines that the run has printed, the newest thousand; they are logged as they come."""
        return list(self._lines)

    @property
    def is_running(self) -> bool:
        """Return whether the process goes on."""
        return self._process.poll() is None

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait for the end of the run. A run that was stopped has ended, too.

        Args:
            timeout_s: Seconds to wait at most. None: as long as it takes.

        Raises:
            TimeoutError: If the run goes on after that time.
            ConfigError: If the configuration cannot work; the text names every fault.
            RunFailed: If the run failed, or its process was killed.
            RunInUse: If another process has the run directory.
            StorageError: If the disk refused.
        """
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{self.run_dir} goes on after {timeout_s:g} s") from None
        self._bury()
        if code not in _STOPPED:
            raise self._error(code)

    def stop(self, timeout_s: float = STOP_S) -> None:
        """Stop the run as Ctrl-C does, with everything saved, and wait for its end.

        A run that has ended stays as it is.

        Args:
            timeout_s: Seconds for saving; after these the process is ended, and the work since the
                last published checkpoints is lost.
        """
        # The first signal saves the run, the second one ends it without saving, SIGKILL cannot be
        # handled.
        for send, patience_s in (
            (self._ask_to_stop, timeout_s),
            (self._process.terminate, AT_ONCE_S),
        ):
            send()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(patience_s)
                break
        self._process.kill_group()
        self._bury()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _ask_to_stop(self) -> None:
        # The signal is sent once, because a second one ends the run without saving.
        if not self._is_asked:
            self._is_asked = True
            self._process.terminate()

    def _read(self) -> None:
        for line in self._process.events(math.inf):
            self._lines.append(line.decode(errors="replace"))
            LOGGER.info("%s", self._lines[-1])

    def _bury(self) -> None:
        """Read the rest of the output, and let go of the pipe."""
        # The wait is bounded, because child processes of a hook may keep the pipe open after the
        # run.
        self._reader.join(AT_ONCE_S)
        if not self._reader.is_alive():
            self._process.close()
        _RUNNING.discard(self)

    def _error(self, code: int) -> ArenaError:
        """Return the error that an exit code and the last lines tell of."""
        if code < 0:
            return RunFailed(
                f"the process of {self.run_dir} was ended by signal {-code}; what was committed is "
                "saved, and resume=True goes on from there"
            )
        said = self._said()
        text = "\n".join(said)
        if code == 2:
            faults = [line.strip() for line in said[1:] if line.strip()]
            is_list = bool(said) and said[0].endswith("things are wrong:")
            return ConfigFaults(faults) if is_list else ConfigError(text)
        if code == 4:
            holder = lock_holder(self.run_dir)
            return AddressInUse(text) if holder is None else RunInUse(str(self.run_dir), holder)
        if code == 5:
            return StorageError(text)
        return RunFailed(text or f"{self.run_dir} ended with exit code {code}")

    def _said(self) -> list[str]:
        """Return the lines of the error without the command's name, else the last ones."""
        lines = self.output
        for at in reversed(range(len(lines))):
            if lines[at].startswith("arena: "):
                lines = [lines[at].removeprefix("arena: "), *lines[at + 1 :]]
                return list(map(with_arguments, lines))
        return lines[-5:]


def with_arguments(text: str) -> str:
    """Return a command's message with the names of Python's arguments in place of options."""
    return _OPTION.sub(_as_argument, text)


def _as_argument(option: re.Match[str]) -> str:
    if option[1] is None:
        return option[0]
    name = _RENAMED.get(option[1], option[1].replace("-", "_"))
    return f"{name}=True" if name in _SWITCHES else name


_RUNNING: set[LaunchedRun] = set()
"""Runs that this process has started and not seen the end of."""


@atexit.register
def _stop_all() -> None:
    """Stop all runs at the end of this process."""
    # A forked process has copies of its parent's handles, but must not stop its parent's runs.
    runs = [run for run in _RUNNING if run._owner == os.getpid()]
    # All runs are asked to stop before any is waited for, because saving may take long.
    for run in runs:
        run._ask_to_stop()
    for run in runs:
        run.stop()


_POLL_S = 0.02


def launch(
    config: str | os.PathLike[str] | Mapping[str, object] | None = None,
    *,
    run_dir: str | os.PathLike[str] | None = None,
    overrides: Mapping[str, object] | Sequence[str] = (),
    learners: int | None = None,
    resume: bool = False,
    force: bool = False,
    init_from: str | Sequence[str] | Mapping[str, str] = (),
    with_hyperparameters: bool = False,
    replay: str | None = None,
    accept_loss: bool = False,
    trust: bool = False,
    wait: bool = True,
) -> LaunchedRun:
    """Start a run, or resume one, as ``arena launch`` does, in a process of its own.

    The lines that the command prints are logged by the logger ``arena.launch``, level INFO.

    Args:
        config: Name of a preset (``connect_four``), a YAML file, or the content of one as plain
            data. None: only with ``resume``.
        run_dir: Run directory. None: ``runs/<preset>-<UTC time>``.
        overrides: Keys of the configuration by their dotted paths, with values of plain data:
            ``{"stop.duration_s": 60, "populations.player.size": 8}``; or texts ``KEY=VALUE``, each
            VALUE in YAML.
        learners: Number of learner processes. None: by the configuration.
        resume: Whether to go on with the run in ``run_dir``, exactly where it stood.
        force: Whether to throw away the run in ``run_dir``.
        init_from: Player whose weights policies start from, or players by population.
        with_hyperparameters: Whether policies start from those players' hyperparameters, too.
        replay: Policy ``RUN:POLICY`` whose hyperparameter schedule a single policy follows.
        accept_loss: Whether to resume although acknowledged work is lost.
        trust: Whether code that the run.yaml of a run from elsewhere names may be imported; with
            ``resume``.
        wait: Whether to return at the end of the run. If not, as soon as it has begun.

    Returns:
        The run, which has ended or goes on. Ctrl-C while this waits stops the run with everything
            saved, and raises ``KeyboardInterrupt``.

    Raises:
        ConfigError: If the configuration cannot work; the text names every fault.
        RunFailed: If the run failed.
        RunInUse: If another process has the run directory.
        StorageError: If the disk refused, or acknowledged work is lost and that is not accepted.
    """
    if run_dir is None:
        if config is None or resume:
            raise ConfigError(
                f"launch needs a config, or with resume a run_dir, got config={config!r}, "
                f"resume={resume}"
            )
        run_dir = default_run_dir("config" if isinstance(config, Mapping) else os.fspath(config))
    options = ["--run-dir", os.fspath(run_dir)]
    options += [] if learners is None else ["--learners", str(learners)]
    options += [] if replay is None else ["--schedule-of", replay]
    options += [text for name in _origins(init_from) for text in ("--init-from", name)]
    switches = {
        "resume": resume,
        "force": force,
        "with-hyperparameters": with_hyperparameters,
        "accept-loss": accept_loss,
        "trust": trust,
    }
    options += [f"--{name}" for name, is_on in switches.items() if is_on]
    texts = _as_texts(overrides)
    # The temporary file is kept until the run has read it, that is, until it has begun or ended.
    with TemporaryDirectory() if isinstance(config, Mapping) else nullcontext() as directory:
        if isinstance(config, Mapping):
            config, data = Path(str(directory)) / "config.yaml", config
            config.write_text(_as_json("config", data))
        positional = [] if config is None else [os.fspath(config)]
        # Arguments after "--" are never parsed as options.
        run = LaunchedRun(run_dir, [*options, "--", *positional, *texts])
        try:
            if wait:
                run.wait()
            else:
                _until_begun(run)
        except BaseException:  # Ctrl-C too
            run.stop()
            raise
    return run


def _origins(init_from: str | Sequence[str] | Mapping[str, str]) -> list[str]:
    if isinstance(init_from, Mapping):
        return [f"{population}={player}" for population, player in init_from.items()]
    return [init_from] if isinstance(init_from, str) else list(init_from)


def _as_texts(overrides: Mapping[str, object] | Sequence[str]) -> list[str]:
    """Return overrides as the command line takes them.

    Raises:
        ConfigError: If a value is no plain data.
    """
    if isinstance(overrides, str):
        raise ConfigError(f"overrides must be a mapping or a list of KEY=VALUE, got {overrides!r}")
    if not isinstance(overrides, Mapping):
        return list(overrides)
    return [f"{key}={_as_json(f'overrides: {key}', value)}" for key, value in overrides.items()]


def _as_json(name: str, value: object) -> str:
    try:
        # JSON is a subset of YAML.
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name} must be plain data, got {value!r}") from error


def _until_begun(run: LaunchedRun) -> None:
    """Wait until a run has begun, or has ended already."""
    from populations.storage.status import read_status

    while run.is_running:
        # The controller writes the status file when it begins to serve.
        status = read_status(run.run_dir)
        if status is not None and status.get("pid") == run.pid:
            return
        time.sleep(_POLL_S)
    run.wait()
