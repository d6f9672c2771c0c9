"""Launching of runs from Python.

Tests: `tests/tools/api/test_launch.py`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

from arena.errors import ConfigError

from ..launch.command import default_run_dir
from .launched import LaunchedRun

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
    # A file of plain data is there until the run has ended, or begun and so read it.
    with TemporaryDirectory() if isinstance(config, Mapping) else nullcontext() as directory:
        if isinstance(config, Mapping):
            config, data = Path(str(directory)) / "config.yaml", config
            config.write_text(_as_json("config", data))
        positional = [] if config is None else [os.fspath(config)]
        # Behind "--" nothing is taken for an option.
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
        # All JSON is YAML.
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name} must be plain data, got {value!r}") from error


def _until_begun(run: LaunchedRun) -> None:
    """Wait until a run has begun, or has ended already."""
    from populations.storage.status import read_status

    while run.is_running:
        # Written by the controller when it begins to serve.
        status = read_status(run.run_dir)
        if status is not None and status.get("pid") == run.pid:
            return
        time.sleep(_POLL_S)
    run.wait()
