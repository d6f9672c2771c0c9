"""`arena launch`: start a run, or resume one.

Tests: `tests/integration/test_launch.py`, `tests/faults/test_storage_runs.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arena.errors import ConfigError
from populations.storage.lock import RunLock

from ..terminal.options import Code, OptionalConfiguration, Overrides, Trust, optional
from ..terminal.output import tell
from .origin import Origin, replaying, with_hyperparameters
from .serving import held_run, serve, tell_of_record

if TYPE_CHECKING:
    from populations.config.run_config import RunConfig
    from populations.config.run_file import RunFile
    from populations.config.validation import Draft

    from .imported_weights import Import


RunDir = Annotated[Path | None, optional(None, "Run directory. Default: runs/<preset>-<UTC time>.")]
NumLearners = Annotated[int | None, typer.Option(min=1, help="Number of learner processes.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run in --run-dir.")]
InitFrom = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[POPULATION=]PLAYER",
        help="Player whose weights policies start from; once for each population, or for all.",
    ),
]
WithHyperparameters = Annotated[
    bool,
    typer.Option(
        "--with-hyperparameters",
        help="Take start values of hyperparameters from the players of --init-from, too.",
    ),
]
ScheduleOf = Annotated[
    str | None,
    optional(
        "RUN:POLICY",
        "Policy whose hyperparameter schedule a single policy follows.",
        *("--schedule-of", "--replay"),
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Throw away the run in --run-dir.")]
AcceptLoss = Annotated[
    bool,
    typer.Option(
        "--accept-loss", help="Resume although acknowledged work is lost; it is said how much."
    ),
]
FinalAsJson = Annotated[bool, typer.Option("--json", help="Print the final status as JSON.")]


def launch(
    config: OptionalConfiguration = None,
    overrides: Overrides = None,
    run_dir: RunDir = None,
    learners: NumLearners = None,
    resume: Resume = False,
    init_from: InitFrom = None,
    with_hyperparameters: WithHyperparameters = False,
    replay: ScheduleOf = None,
    force: Force = False,
    accept_loss: AcceptLoss = False,
    trust: Trust = False,
    code: Code = None,
    as_json: FinalAsJson = False,
) -> None:
    """Start a run, or resume one."""
    # This must be set before NumPy is imported. Learners occupy the cores, and BLAS threads that
    # wait for one another make rating fits several times slower.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    changes = list(overrides or ())
    # With --resume the first argument may be an override, because the configuration is the run's.
    if config is not None and "=" in config:
        changes.insert(0, config)
        config = None
    if learners is not None:
        # The number comes last, so that --learners overrides the key.
        changes.append(f"learners={learners}")
    origin = Origin(
        init_from=tuple(init_from or ()),
        with_hyperparameters=with_hyperparameters,
        replay=replay,
    )
    if resume:
        # A resumed run has its weights and schedule; --force would throw away the run to be
        # resumed.
        has_start = force or not origin.is_empty
        _resume(
            config,
            changes,
            run_dir=run_dir,
            has_start=has_start,
            accept_loss=accept_loss,
            trust=trust,
            json_=as_json,
        )
    else:
        if accept_loss:
            raise ConfigError("--accept-loss goes with --resume: a new run has lost nothing")
        _start(config, changes, run_dir=run_dir, force=force, origin=origin, json_=as_json)


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
    from populations.config.run_config import draft_config
    from populations.controller.server.run_directory import (
        clear_run,
        create_run,
        has_run,
        make_run_directory,
    )
    from populations.controller.server.server import utc_now

    from .imported_weights import find_arrivals, find_outsiders, played_lines

    if source is None:
        raise ConfigError("launch needs a CONFIG: a preset's name or a YAML file")
    origin.check()
    draft = draft_config(source, overrides, notify=tell)
    target = run_dir if run_dir is not None else default_run_dir(source)
    # The target is checked before the environment is inspected, which takes seconds.
    _check_target(target, force=force)
    run_file, initial = _new_run_file(draft, source, overrides, target=target, origin=origin)
    # Weights are read now, because their files may be removed later, also by --force.
    outsiders = find_outsiders(run_file)
    immigrants = find_arrivals(run_file)
    make_run_directory(target)
    with RunLock(target):
        # The directory is checked again, because only the lock keeps a second launch out.
        if has_run(target) and not force:
            raise ConfigError(f"{target} holds a run by now: another launch was faster")
        # Leftovers of a launch that was killed are not a run, but must be removed.
        clear_run(target)
        why_not = create_run(
            target,
            run_file,
            initial_weights={name: start.files for name, start in initial.items()},
            origins={name: start.record for name, start in initial.items()},
            factors={name: start.factors for name, start in initial.items()},
            immigrants=immigrants | {key: one.files for key, one in outsiders.items()},
            outsiders={key: one.record for key, one in outsiders.items()},
            utc=utc_now(),
        )
        tell_of_record(why_not)
        for name, start in initial.items():
            tell(f"{name} starts from {start.said}")
        for line in played_lines(run_file, outsiders):
            tell(line)
        serve(target, launch_directory=run_file.launch_directory, json_=json_)


def _check_target(target: Path, *, force: bool) -> None:
    """Refuse a directory that holds a run or anything else.

    Raises:
        ConfigError: If it does.
    """
    from populations.controller.server.run_directory import has_run

    if has_run(target):
        if not force:
            raise ConfigError(
                f"{target} holds a run already: --resume goes on with it, --force throws it away"
            )
    # --force throws away runs, but no other directories.
    elif target.exists() and any(target.iterdir()):
        raise ConfigError(f"{target} is neither empty nor a run directory")


def _new_run_file(
    draft: Draft[RunConfig], source: str, overrides: Sequence[str], *, target: Path, origin: Origin
) -> tuple[RunFile, Mapping[str, Import]]:
    """Check a configuration with its environment and sinks, and apply its origins.

    Prints the sizes that were chosen, remarks about them, and the margin of a match.

    Returns:
        Content of run.yaml, and the weights that policies start from, by population.

    Raises:
        ConfigError: Names every fault.
    """
    from arena.metrics.sink import find_sinks
    from arena.resolve import code_directory
    from populations.config.run_file import new_run_file
    from populations.config.sizing import without_pace
    from populations.hooks.make import check_config as check_hooks

    from .imported_weights import find_initial_weights, with_networks
    from .preflight import looked_over
    from .sizing import crowd_line, repeats_line, sizing_line, stakes_line

    launch_directory = code_directory()
    # All faults are reported at once, before anything is written.
    found = looked_over(draft, launch_directory=launch_directory)
    asked = draft.require()
    # Sizes are conservative if random play reached no end; `why` gives the reason.
    config = with_networks(without_pace(asked, why=found.why) if found.why else asked)
    if origin.replay is not None:
        config = replaying(config, found.spec, origin.replay, launch_directory=launch_directory)
    make = partial(
        new_run_file,
        spec=found.spec,
        name=source,
        launch_directory=launch_directory,
        init_from=origin.said,
        pace=found.pace,
        code=found.code,
    )
    run_file = make(config)
    initial = find_initial_weights(
        run_file, origin.init_from, with_hyperparameters=origin.with_hyperparameters
    )
    if origin.with_hyperparameters:
        # The run file is made again, because sizes and margins depend on hyperparameters, too.
        try:
            run_file = make(
                with_hyperparameters(
                    config, run_file.config, imports=initial, overrides=overrides, notify=tell
                )
            )
        # The message names the option, because the values are not in the user's file.
        except ConfigError as error:
            raise ConfigError(f"--with-hyperparameters: {error}") from error
    # This is only a check: the run makes its own sinks when it is opened.
    find_sinks(config.metrics.sinks, target, launch_directory=launch_directory)
    check_hooks(config, launch_directory=launch_directory)
    sizes = sizing_line(asked, run_file, why=found.why)
    crowd = crowd_line(run_file.config)
    for line in (sizes, crowd, stakes_line(run_file), repeats_line(run_file)):
        if line:
            tell(line)
    return run_file, initial


def default_run_dir(source: str) -> Path:
    """Return the run directory of a launch that names none: by its configuration and the time."""
    return Path("runs") / f"{Path(source).stem}-{datetime.now(UTC):%Y%m%d-%H%M%S}"


def _resume(
    source: str | None,
    overrides: list[str],
    *,
    run_dir: Path | None,
    has_start: bool,
    accept_loss: bool,
    trust: bool,
    json_: bool,
) -> None:
    from populations.config.run_config import load_config
    from populations.config.run_file import check_resume, with_config
    from populations.config.trust import record_launch, trusted, with_own

    from .preflight import look_at_world

    if run_dir is None:
        raise ConfigError("--resume needs --run-dir: which run is to go on")
    if has_start:
        raise ConfigError(
            "--resume goes on exactly where the run stood: no --force, --init-from, "
            "--with-hyperparameters or --schedule-of"
        )
    with held_run(run_dir, accept_loss=accept_loss) as found:
        config = (
            load_config(source, overrides, notify=tell, resumes=True)
            if source is not None
            else None
        )
        old = with_own(trusted(found, run_dir, trust=trust, config=config), overrides)
        new, changes = check_resume(old, config=config, overrides=overrides, notify=tell)
        world = look_at_world(old, new, run_dir=run_dir)
        changed = with_config(old, new, code=world.code) if changes else None
        tell_of_record(record_launch(changed or old))
        serve(
            run_dir,
            launch_directory=old.launch_directory,
            changes=changes,
            changed=changed,
            world=world,
            accept_loss=accept_loss,
            json_=json_,
        )
