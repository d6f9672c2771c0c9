"""Serving of an open run in this process: learners, signals, a display, and its last lines.

Tests: `tests/integration/test_launch.py`, `tests/faults/test_storage_runs.py`,
`tests/tools/launch/test_ending.py`.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer

from arena.errors import ConfigError
from arena.rules import shown
from populations.storage.lock import RunLock
from populations.views.notices import anchor_text, cyclic_warnings, misfit_warnings, unproven_lines
from populations.views.views import document

from ..terminal.output import duration, print_json, tell
from ..terminal.signals import stop_on_signals

if TYPE_CHECKING:
    from populations.config.resume import Change
    from populations.config.run_file import RunFile
    from populations.controller.server.run_directory import OpenRun
    from populations.records.rows import EventRow, Json

    from .preflight import World

_LIMIT = re.compile(r"stop\.([a-z_]+): ")
"""Beginning of the reason of a run that a limit has ended."""


def raised(state: object, reason: str, limits: Mapping[str, Json]) -> str:
    """Return an override with which a finished run goes on; empty where it needs none.

    Args:
        state: ``finished``, ``stopped`` or ``failed``.
        reason: Reason of the end, in words.
        limits: The values of ``stop``, by key.
    """
    limit = _LIMIT.match(reason)
    value = limits.get(limit[1]) if limit is not None else None
    if state != "finished" or limit is None or value is None:
        return ""
    # Results and shares cannot be doubled, so the limit is removed.
    if limit[1] in ("evaluation", "success_rate") or not isinstance(value, int | float):
        return f"stop.{limit[1]}=null"
    # A rating has no natural zero, so 100 Elo are added instead of doubling.
    more = value + 100 if limit[1] == "rating" else 2 * value
    # 15 digits give no exponent below 10^15 steps and no rounding remainder.
    return f"stop.{limit[1]}={more:.15g}"


def last_lines(
    status: Mapping[str, Json],
    *,
    run_dir: Path,
    limits: Mapping[str, Json],
    holds: str | None = None,
) -> Iterator[str]:
    """Yield the lines that `arena launch` prints when a run has ended.

    Args:
        status: Document of `arena league RUN status --json`.
        run_dir: The run's directory.
        limits: The values of ``stop``, by key.
        holds: The limit for which a finished run was not gone on with.
    """
    run, state, reason = shlex.quote(str(run_dir)), status["state"], holds or str(status["reason"])
    # A failed run is reported as every command reports a failure.
    what = "arena: the run failed" if state == "failed" else state
    yield f"{what}: {reason}"
    logs = shlex.quote(str(run_dir / "logs"))
    # A run may end properly without training, if learners fail at once or the limit is tiny.
    if status["agent_steps"] == 0:
        yield "nothing was trained: 0 agent steps are committed"
        yield f"  the learners' logs may say why: {logs}; if not, raise what stop says"
    saved = "what was committed is saved" if state == "failed" else "everything is saved"
    yield f"{saved} in {run}; to go on:"
    yield f"  arena launch --resume --run-dir {run} {raised(state, reason, limits)}".rstrip()
    if state == "failed":
        yield f"  before that: the learners' logs are in {logs}"
    if quarantined := cast("Sequence[str]", status["quarantined"]):
        first, *others = quarantined
        more = f" and {len(others)} more" if others else ""
        yield f"in quarantine: {first}{more}"
        yield f"  why: arena league {run} why {first}"
        yield f"  to put it back: arena rewind {run}:{first}@best"
    champions = cast("Mapping[str, Mapping[str, Any]]", status["champion"])
    if not champions:
        yield "champion: none yet, since no player is rated"
        return
    for name, one in champions.items():
        of = f" of {name}" if len(champions) > 1 else ""
        low, high = one["rating_low"], one["rating_high"]
        # The upper bound is None if no opponent took a point from this player.
        rating = (
            f"{low:z.0f}+" if high is None else f"{one['rating']:z.0f} [{low:z.0f}, {high:z.0f}]"
        )
        yield f"champion{of}: {one['player']}, rating {rating}"
        if anchor := one.get("anchor"):
            yield f"  {anchor_text(anchor)}"
        yield from unproven_lines([one["unproven"]])
    proven = [name for name, one in champions.items() if one["unproven"] is None]
    if len(proven) == len(champions):
        yield f"next: arena export {run}"
    else:
        # A policy that has learned nothing is not suggested for export.
        yield from (f"next: arena export {run} --population {name}" for name in proven)


def say_how_it_ended(run_dir: Path, *, holds: str | None) -> dict[str, Json]:
    """Say the last lines of a run, and return its status.

    Args:
        run_dir: The run's directory; the run is closed.
        holds: The limit for which a finished run was not gone on with.
    """
    from populations.views.questions.inspection import Inspection

    with closing(Inspection.open(run_dir)) as inspection:
        status = document(inspection, "status")
        warnings = [
            *misfit_warnings(inspection.fits(), run=run_dir),
            *cyclic_warnings(inspection.cyclicity(), run=run_dir),
        ]
        limits = inspection.run_file.config.stop.model_dump(mode="json")
    lines = last_lines(status, run_dir=run_dir, limits=limits, holds=holds)
    for line in (*warnings, *lines):
        tell(line)
    return status


# -P keeps a project's own arena.py in the current directory from being imported. The folder tools/
# is populations.commands once it is installed; otherwise it has no presets.
MAIN = "populations.commands.main"
ARENA = (sys.executable, "-P", "-m", MAIN)
"""Command that is ``arena``, whatever the path of this process is."""


@contextmanager
def held_run(run_dir: Path, *, accept_loss: bool = False) -> Iterator[RunFile]:
    """Hold the lock of a run that is there, and return its run.yaml. Writes nothing.

    Raises:
        WorkLost: If acknowledged work is lost and that is not accepted.
        ConfigError: If there is none.
        RunInUse: If it is going on.
    """
    from populations.config.run_file import RUN_FILE, RunFile
    from populations.controller.server.run_directory import current_file
    from populations.storage.loss import accepted_loss

    if not (run_dir / RUN_FILE).exists():
        raise ConfigError(f"there is no run in {run_dir}")
    with RunLock(run_dir):
        # Losses are checked here as well as at the opening, which comes seconds later: a damaged
        # journal needs another remedy than an environment.
        accepted_loss(run_dir, accept=accept_loss)
        # The file is read under the lock, because another controller may have changed run.yaml
        # until now. An interrupted change is completed later: nothing is written before all is
        # checked.
        yield RunFile.load(current_file(run_dir))


@contextmanager
def stopped_run(run_dir: Path, *, trust: bool) -> Iterator[OpenRun]:
    """Open a run that is not going on, to change a row of it under its lock.

    Raises:
        ConfigError: If there is none.
        RunInUse: If it is going on.
    """
    from populations.config.trust import trusted
    from populations.controller.server.run_directory import OpenRun

    with held_run(run_dir) as found:
        # The rules of matchmaking and PBT are constructed with the run's state.
        code = trusted(found, run_dir, trust=trust).launch_directory
        with OpenRun(run_dir, with_sinks=False, launch_directory=code) as run:
            yield run


def tell_of_record(why_not: str | None) -> None:
    """Say why later commands about this run will need ``--trust``; None: they will not."""
    if why_not is not None:
        tell(
            f"note: that you launched this run cannot be kept ({why_not}), so commands about it "
            "need --trust; XDG_STATE_HOME names another place"
        )


def serve(
    run_dir: Path,
    *,
    launch_directory: str,
    changes: Sequence[Change] = (),
    changed: RunFile | None = None,
    world: World | None = None,
    accept_loss: bool = False,
    evaluate_s: float | None = None,
    json_: bool,
) -> None:
    """Run a controller in this process until the run ends, then say how.

    Args:
        run_dir: Run directory, whose lock the caller holds.
        launch_directory: Directory of the code that run.yaml names, by the user's word.
        changes: Changes of its configuration.
        changed: Content of run.yaml with these; None: there are none.
        world: World that it goes on in; None: that in which it was just made.
        accept_loss: Whether it goes on although acknowledged work is lost.
        evaluate_s: Seconds for which it is evaluated without training; None: it trains.
        json_: Whether to print the final status as JSON.

    Raises:
        ConfigError: If there is nothing to evaluate.
        WorkLost: If acknowledged work is lost and that is not accepted; nothing was written.
    """
    from populations.controller.server.run_directory import OpenRun
    from populations.controller.server.server import utc_now
    from populations.controller.state.epoch import Countdown

    for warning in () if world is None else world.warnings:
        tell(warning)
    # Opening the run recovers from a crash before anything is decided.
    with OpenRun(
        run_dir, changed=changed, launch_directory=launch_directory, accept_loss=accept_loss
    ) as run:
        if evaluate_s is not None:
            _require_evaluable(run)
            run.state.phase.evaluation_only = Countdown(duration_s=evaluate_s)
        # The journal records these differences, too, because standard error is not kept.
        if world is not None:
            run.note_event("versions_differ", world.other_versions, utc=utc_now())
            run.note_event("code_differs", world.other_code, utc=utc_now())
        if run.loss is not None:
            tell(f"warning: {run.loss}; --accept-loss: the run goes on without it")
            run.note_event("work_lost", run.loss.data, utc=utc_now())
        for line in overwritten_lines(run.reconfigure(changes, utc=utc_now())):
            tell(line)
        holds = _holding_limit(run)
        if holds is None:
            control(run)
        else:
            tell(f"{run_dir} is finished, and a limit holds still: nothing was trained")
    # The run is closed by now, so its end is read from the journal, as any command reads it.
    document = say_how_it_ended(run_dir, holds=holds)
    if json_:
        print_json(document)
    _end(str(document["state"]), str(document["reason"]))


def overwritten_lines(events: Iterable[EventRow]) -> Iterator[str]:
    """Yield a line for each hyperparameter that a resume changed: what policies had before.

    Args:
        events: Events of the resume.
    """
    before: defaultdict[tuple[str, str], list[Json]] = defaultdict(list)
    after: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for event in events:
        if event.kind != "hyperparameters_changed":
            continue
        old, new = (cast("dict[str, Json]", event.data[key]) for key in ("old", "new"))
        population = event.subject.rpartition("/")[0]
        for name in dict.fromkeys((*old, *new)):
            if old.get(name) != new.get(name):
                after[population, name].add(shown(new.get(name)))
                before[population, name] += [old[name]] if name in old else []
    for (population, name), now in after.items():
        had = before[population, name]
        told = {f"{one:.4g}" if isinstance(one, float) else shown(one) for one in had}
        values = ", ".join(sorted(told)) or "none"
        value = ", ".join(sorted(now))
        yield f"{name} of {population} is {value} now; {len(had)} policies had {values}"


def _holding_limit(run: OpenRun) -> str | None:
    """Return the limit for which a finished run cannot go on, with its value; None: it can."""
    from populations.controller.phases import limit_reached

    row = run.state.tables.run
    # A stopped or failed run is resumed, and its controller checks the limits itself.
    if row.state != "finished" or run.state.phase.evaluation_only is not None:
        return None
    return limit_reached(
        run.state.settings.config, run.state.indexes, trained_s=row.elapsed_s - row.closing_s
    )


def control(run: OpenRun) -> None:
    """Serve with signals, a display and the configured launcher."""
    import logging

    from arena.processes.descriptors import raise_limit
    from arena.processes.log import begin_log
    from populations.controller.server.server import Server
    from populations.hooks.make import make_hook_processes
    from populations.launchers.make import make_launcher

    from .display import make_display

    # A log line that the disk refuses must not print a traceback.
    logging.raiseExceptions = False
    begin_log(file=run.run_dir / "logs" / "controller.log")
    raise_limit()
    with (
        make_launcher(run, notify=tell) as (transport, launcher, store),
        make_display(run) as display,
    ):
        _tell_where(run, transport.endpoint)
        tell(_plan_line(run))

        def refresh(status: Mapping[str, Json]) -> None:
            display.refresh(status)
            # A closed output counts as a hang-up: the run stops with everything saved.
            if not display.is_seen:
                server.request_stop("interrupted by SIGHUP: its output has no reader any more")

        server = Server(
            run_dir=run.run_dir,
            state=run.state,
            journal=run.journal,
            transport=transport,
            launcher=launcher,
            store=store,
            sinks=run.sinks,
            hooks=make_hook_processes(
                run.run_file.config,
                run.run_dir,
                launch_directory=run.setup.launch_directory,
                command=ARENA,
                num_events=run.state.tables.num_events,
                is_new=run.state.tables.run.epoch == 0,
            ),
            on_commit=display.note,
            on_status=refresh,
            on_wait=display.wait_for,
        )
        # Until here signals end the command (`leave_on_signals`), because there is nothing to save.
        with stop_on_signals(server, run_dir=run.run_dir):
            server.run()


def _require_evaluable(run: OpenRun) -> None:
    """Refuse to evaluate a run that has failed, has no weights, or in which no clock decides.

    Raises:
        ConfigError: Names the reason.
    """
    tables = run.state.tables
    if tables.run.state == "failed":
        raise ConfigError(f"{run.run_dir} has failed and is not evaluated: {tables.run.reason}")
    if run.state.settings.config.deterministic:
        raise ConfigError(
            f"{run.run_dir} is deterministic: a time decides nothing there, so it is not evaluated "
            "for one"
        )
    if all(row.checkpoint is None for row in tables.policies.values()):
        raise ConfigError(f"{run.run_dir} has no checkpoint yet: there is nothing to evaluate")


def _plan_line(run: OpenRun) -> str:
    """Say what happens until the end of the run."""
    from .display import finals_line

    only = run.state.phase.evaluation_only
    if only is not None:
        return (
            f"evaluation only, for {duration(only.duration_s)}: nothing is trained, copied or "
            "frozen"
        )
    return finals_line(run.state.settings.config, num_learners=max(len(run.state.crew.slots), 1))


def _tell_where(run: OpenRun, endpoint: str) -> None:
    """Warn if learners can come from other machines."""
    from arena.wire.address import is_loopback
    from arena.wire.keys import KEYS

    # On Ray each learner has a key of its own, which is not in a file here.
    keys = "this run" if run.run_file.config.launcher == "ray" else run.run_dir / KEYS
    if endpoint.startswith("tcp://") and not is_loopback(endpoint):
        tell(
            f"warning: other machines can reach {endpoint}; only learners with a key of {keys} "
            "are let in, and messages are encrypted"
        )


def _end(state: str, reason: str) -> None:
    """End with the state's code; the reason is said already."""
    if state == "failed":
        raise typer.Exit(3)
    if state == "stopped":
        # The reason names the signal (`stop_on_signals`); 130 is SIGINT's exit code.
        raise typer.Exit(143 if "SIGTERM" in reason or "SIGHUP" in reason else 130)
