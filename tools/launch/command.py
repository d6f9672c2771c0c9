"""`arena launch`: start a run, or resume one.

Tests: `tests/integration/test_launch.py`, `tests/faults/test_run_directory.py`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..terminal.options import OptionalConfiguration, Overrides
from ..terminal.output import log_console, print_json

if TYPE_CHECKING:
    from populations.config.run_config import RunConfig
    from populations.config.run_file import Change, RunFile
    from populations.config.validation import Draft
    from populations.controller.server.run_directory import OpenRun
    from populations.records.rows import Json

    from .imported_weights import Import


# Installed, the folder tools/ is populations.commands.
EXPORT = (sys.executable, "-m", f"{__package__.rpartition('.')[0]}.main", "export")
"""Command that is ``arena export``, whatever the path of this process is."""


def launch(
    config: OptionalConfiguration = None,
    overrides: Overrides = None,
    run_dir: Annotated[
        Path | None,
        typer.Option(help="Run directory. Default: runs/<preset>-<UTC time>.", show_default=False),
    ] = None,
    learners: Annotated[
        int | None, typer.Option(min=1, help="Number of learner processes.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in --run-dir.")
    ] = False,
    init_from: Annotated[
        str | None,
        typer.Option(metavar="PLAYER", help="Player whose weights policies start from."),
    ] = None,
    replay: Annotated[
        str | None,
        typer.Option(
            metavar="RUN:POLICY",
            help="Policy whose hyperparameter schedule a single policy follows.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Throw away the run in --run-dir.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the final status as JSON.")
    ] = False,
) -> None:
    """Start a run, or resume one."""
    # Must be set before NumPy is imported. Learners occupy the cores, and threads of BLAS that wait
    # for one another would make fits of ratings several times slower.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    changes = list(overrides or ())
    # With --resume the first argument may be an override: the configuration is the run's then.
    if config is not None and "=" in config:
        changes.insert(0, config)
        config = None
    if learners is not None:
        # Last, so that the option is stronger than a key.
        changes.append(f"learners={learners}")
    if resume:
        # A resumed run has its weights and schedule; --force would throw away what is to go on.
        has_start = force or init_from is not None or replay is not None
        _resume(config, changes, run_dir=run_dir, has_start=has_start, json_=as_json)
    else:
        origin = Origin(init_from=init_from, replay=replay)
        _start(config, changes, run_dir=run_dir, force=force, origin=origin, json_=as_json)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Origins of a run in other runs: a player's weights, a policy's schedule."""

    init_from: str | None
    replay: str | None


def _start(
    source: str | None,
    overrides: list[str],
    *,
    run_dir: Path | None,
    force: bool,
    origin: Origin,
    json_: bool,
) -> None:
    """Check everything that can be checked, and only then create anything."""
    from arena.errors import ConfigError
    from populations.config.run_config import draft_config

    from .imported_weights import (
        find_immigrants,
        find_initial_weights,
        find_outsiders,
        find_resets,
    )

    if source is None:
        raise ConfigError("launch needs a CONFIG: a preset's name or a YAML file")
    draft = draft_config(source, overrides, notify=tell)
    target = run_dir if run_dir is not None else _default_run_dir(source)
    # Before the environment is inspected, which takes seconds.
    _check_target(target, force=force)
    run_file = _new_run_file(draft, source, target=target, origin=origin)
    initial = find_initial_weights(run_file, origin.init_from) if origin.init_from else {}
    # Weights are read into memory now: their files may be gone, or thrown away by --force, later.
    immigrants = find_immigrants(run_file) | find_outsiders(run_file) | find_resets(run_file)
    _create(target, run_file, initial=initial, immigrants=immigrants, force=force, json_=json_)


def _check_target(target: Path, *, force: bool) -> None:
    """Refuse a directory that holds a run or anything else.

    Raises:
        ConfigError: If it does.
    """
    from arena.errors import ConfigError
    from populations.controller.server.run_directory import has_run

    if has_run(target):
        if not force:
            raise ConfigError(
                f"{target} holds a run already: --resume goes on with it, --force throws it away"
            )
    # --force throws away runs, no other directories.
    elif target.exists() and any(target.iterdir()):
        raise ConfigError(f"{target} is neither empty nor a run directory")


def _new_run_file(draft: Draft[RunConfig], source: str, *, target: Path, origin: Origin) -> RunFile:
    """Check a configuration with its environment and sinks, and apply ``--replay``.

    Prints the sizes that were chosen and the margin of a match.

    Raises:
        ConfigError: Names every fault.
    """
    from arena.metrics.sink import find_sinks
    from populations.config.run_file import new_run_file
    from populations.hooks.make import check_config as check_hooks

    from .preflight import looked_over
    from .replay import replaying
    from .sizing import sizing_line, stakes_line

    launch_directory = str(Path.cwd())
    # All faults at once, while there is nothing to clear up.
    config, found = looked_over(draft, launch_directory=launch_directory)
    asked = draft.require()
    if origin.replay is not None:
        config = replaying(config, found.spec, origin.replay, launch_directory=launch_directory)
    run_file = new_run_file(
        config,
        found.spec,
        name=source,
        launch_directory=launch_directory,
        init_from=origin.init_from,
        pace=found.pace,
    )
    # A check: the run makes its own sinks when it is opened.
    find_sinks(config.metrics.sinks, target, launch_directory=launch_directory)
    check_hooks(config, launch_directory=launch_directory)
    for line in (sizing_line(asked, run_file, why=found.why), stakes_line(run_file)):
        if line:
            tell(line)
    return run_file


def _create(
    target: Path,
    run_file: RunFile,
    *,
    initial: Mapping[str, Import],
    immigrants: Mapping[str, Mapping[str, bytes]],
    force: bool,
    json_: bool,
) -> None:
    """Create a run in a directory, and serve it to its end."""
    from arena.errors import ConfigError
    from populations.controller.server.run_directory import (
        clear_run,
        create_run,
        has_run,
        make_run_directory,
    )
    from populations.controller.server.server import utc_now
    from populations.storage.lock import RunLock

    make_run_directory(target)
    with RunLock(target):
        # Again, because only the lock keeps a second launch out.
        if has_run(target) and not force:
            raise ConfigError(f"{target} holds a run by now: another launch was faster")
        # Leftovers of a launch that was killed are no run, but in the way.
        clear_run(target)
        create_run(
            target,
            run_file,
            initial_weights={name: start.files for name, start in initial.items()},
            origins={name: start.record for name, start in initial.items()},
            immigrants=immigrants,
            utc=utc_now(),
        )
        for name, start in initial.items():
            tell(f"{name} starts from {start.said}")
        _serve(target, json_=json_)


def _default_run_dir(source: str) -> Path:
    from datetime import UTC, datetime

    return Path("runs") / f"{Path(source).stem}-{datetime.now(UTC):%Y%m%d-%H%M%S}"


def _resume(
    source: str | None,
    overrides: list[str],
    *,
    run_dir: Path | None,
    has_start: bool,
    json_: bool,
) -> None:
    from arena.errors import ConfigError
    from populations.config.run_config import load_config
    from populations.config.run_file import (
        RUN_FILE,
        RunFile,
        check_resume,
        other_versions,
        with_config,
    )
    from populations.controller.server.reconfiguration import settle
    from populations.controller.server.run_directory import has_run
    from populations.hooks.make import check_config as check_hooks
    from populations.storage.lock import RunLock

    from .device import check_devices

    if run_dir is None:
        raise ConfigError("--resume needs --run-dir: which run is to go on")
    if has_start:
        raise ConfigError(
            "--resume goes on exactly where the run stood: no --force, --init-from or --replay"
        )
    if not has_run(run_dir) or not (run_dir / RUN_FILE).exists():
        raise ConfigError(f"there is no run in {run_dir}")
    with RunLock(run_dir):
        settle(run_dir)
        old = RunFile.load(run_dir / RUN_FILE)
        # Under the lock: another controller may have changed run.yaml until now.
        config = (
            load_config(source, overrides, notify=tell, resumes=True)
            if source is not None
            else None
        )
        new, changes = check_resume(old, config=config, overrides=overrides, notify=tell)
        check_devices(new.devices)
        check_hooks(new, launch_directory=old.launch_directory)
        versions = other_versions(old)
        if versions:
            tell(versions_warning(versions))
        _serve(
            run_dir,
            changes=changes,
            changed=with_config(old, new) if changes else None,
            versions={name: list(pair) for name, pair in versions.items()},
            json_=json_,
        )


def versions_warning(versions: Mapping[str, tuple[str, str | None]]) -> str:
    """Say which packages are others than when a run was made."""
    parts = [f"{name} {then} (here {now or 'none'})" for name, (then, now) in versions.items()]
    pins = " ".join(f"{name}=={then}" for name, (then, _) in versions.items())
    return (
        f"warning: run.yaml records {', '.join(parts)}; with other packages the same seed may give "
        f"other results (the recorded ones: pip install {pins})"
    )


def tell(text: str) -> None:
    """Say something on standard error."""
    log_console().print(text, markup=False, soft_wrap=True, highlight=False)


def _serve(
    run_dir: Path,
    *,
    changes: Sequence[Change] = (),
    changed: RunFile | None = None,
    versions: Mapping[str, Json] | None = None,
    json_: bool,
) -> None:
    """Run a controller in this process until the run ends, then say how."""
    from populations.controller.server.run_directory import OpenRun
    from populations.controller.server.server import utc_now

    # Recovers from a crash, if there was one, before anything is decided.
    with OpenRun(run_dir, changed=changed) as run:
        # In the journal, too: standard error is forgotten.
        run.note_event("versions_differ", versions or {}, utc=utc_now())
        run.reconfigure(changes, utc=utc_now())
        holds = _holding_limit(run)
        if holds is None:
            _control(run)
        else:
            tell(f"{run_dir} is finished, and a limit holds still: nothing was trained")
    # After the run is closed: from the journal, as any command sees it.
    document = _say_how_it_ended(run_dir, holds=holds)
    if json_:
        print_json(document)
    _exit(str(document["state"]), str(document["reason"]))


def _holding_limit(run: OpenRun) -> str | None:
    """Return the limit for which a finished run cannot go on, with its value; None: it can."""
    from populations.controller.phases import limit_reached

    row = run.state.tables.run
    # A stopped or failed run goes on, and its controller looks at the limits itself.
    if row.state != "finished":
        return None
    return limit_reached(run.state, elapsed_s=row.elapsed_s)


def _say_how_it_ended(run_dir: Path, *, holds: str | None) -> dict[str, Json]:
    """Print the last lines of a run, and return its status."""
    from populations.inspection.views import Inspection, cyclicity, fits, status_view

    from ..notices import cyclic_warnings, misfit_warnings
    from .ending import last_lines, make_ending

    inspection = Inspection.open(run_dir)
    try:
        document = status_view(inspection, None)
        warnings = [
            *misfit_warnings(fits(inspection), run=run_dir),
            *cyclic_warnings(cyclicity(inspection), run=run_dir),
        ]
        limits = inspection.run_file.config.stop.model_dump(mode="json")
    finally:
        inspection.close()
    ending = make_ending(document, run_dir=run_dir, limits=limits, holds=holds)
    for line in (*warnings, *last_lines(ending)):
        tell(line)
    return document


def _control(run: OpenRun) -> None:
    """Serve with signals, a display and the configured launcher."""
    import logging

    from populations.controller.server.server import Server
    from populations.hooks.make import make_hook_processes
    from populations.launchers.make import make_launcher

    from ..terminal.signals import stop_on_signals
    from .display import make_display
    from .finals import finals_line

    # A log that the disk refuses is no reason to print a traceback for each line of it.
    logging.raiseExceptions = False
    logging.basicConfig(
        filename=run.run_dir / "logs" / "controller.log",
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    with (
        make_launcher(run, notify=tell) as (transport, launcher),
        make_display(run) as display,
    ):
        _tell_where(run, transport.endpoint)
        tell(finals_line(run.state.config, num_learners=max(len(run.state.slots), 1)))

        def refresh(status: Mapping[str, Json]) -> None:
            display.refresh(status)
            # A closed output is a hang-up: the run stops with everything saved.
            if not display.is_seen:
                server.request_stop("interrupted by SIGHUP: its output has no reader any more")

        server = Server(
            run_dir=run.run_dir,
            state=run.state,
            journal=run.journal,
            transport=transport,
            launcher=launcher,
            sinks=run.sinks,
            hooks=make_hook_processes(
                run.run_file.config,
                run.run_dir,
                launch_directory=run.setup.launch_directory,
                export_command=EXPORT,
                num_events=run.state.tables.num_events,
                is_new=run.state.tables.run.epoch == 0,
            ),
            on_commit=display.note,
            on_status=refresh,
            on_wait=display.wait_for,
        )
        # Until here signals end the command (`leave_on_signals`): there is nothing to save.
        with stop_on_signals(server, run_dir=run.run_dir):
            server.run()


def _tell_where(run: OpenRun, endpoint: str) -> None:
    """Warn if learners can come from other machines."""
    from arena.wire.address import is_loopback
    from arena.wire.keys import KEYS

    if endpoint.startswith("tcp://") and not is_loopback(endpoint):
        log_console().print(
            f"warning: other machines can reach {endpoint}; only learners with a key of "
            f"{run.run_dir / KEYS} are let in, and messages are encrypted",
            markup=False,
            soft_wrap=True,
        )


def _exit(state: str, reason: str) -> None:
    """End with the state's code; the reason is said already."""
    if state == "failed":
        raise typer.Exit(3)
    if state == "stopped":
        # The reason names the signal (`stop_on_signals`); 130 is SIGINT's code.
        raise typer.Exit(143 if "SIGTERM" in reason or "SIGHUP" in reason else 130)
