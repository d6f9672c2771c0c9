"""Construction of the configured processes for hooks, for exports, and for each tracker."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from arena.metrics.tracker import TRACKERS
from populations.config.run_config import RunConfig
from populations.hooks.calls import EXPORT, begin_place
from populations.hooks.process import EXPORTS, HookSettings, TrackerSettings
from populations.hooks.supervisor import HookProcess, check_hooks

PLACE, EXPORTS_PLACE = "hooks.json", "exports.json"
"""Files in a run directory that record which calls were made."""

EXPORT_S = 600.0
"""Time limit of one export."""

EXPORTS_END_S = 600.0
"""Longest time that the end of a run waits for exports."""

TRACKER_S, TRACKER_END_S = 120.0, 300.0
"""Time limit of a tracker's start and of each batch of points; and the longest time that the end of
a run waits for a tracker, which may have points to send."""


def make_hook_processes(
    config: RunConfig,
    run_dir: Path,
    *,
    launch_directory: str,
    command: Sequence[str],
    num_events: int,
    is_new: bool,
) -> list[HookProcess]:
    """Return the processes of a run, not started yet.

    Args:
        config: Configuration of the run.
        run_dir: Run directory.
        launch_directory: Directory searched first for user code.
        command: Command that runs ``arena``, without arguments.
        num_events: Number of events in the journal.
        is_new: Whether this is the run's first controller, so that hooks begin with the run's first
            event.

    Raises:
        StorageError: If a file cannot be written.
    """
    path, hooks = run_dir.resolve(), config.hooks
    exports = config.checkpoints.export_every_agent_steps
    processes = []
    if hooks.by_kind:
        settings = hook_settings(config, path, launch_directory=launch_directory)
        num_ends = len(hooks.on_end)
        end_s = (1 + num_ends) * hooks.time_limit_s
        processes.append(HookProcess(settings=settings, end_s=end_s, num_ends=num_ends))
    if exports:
        settings = _export_settings(config, path, launch_directory, command)
        processes.append(
            HookProcess(
                settings=settings, name="exports", alert="export_failed", end_s=EXPORTS_END_S
            )
        )
    for place, is_asked in ((PLACE, hooks.by_kind), (EXPORTS_PLACE, exports)):
        if is_asked:
            begin_place(path / place, after=0 if is_new else num_events)
        else:
            # Hooks that a later resume configures again must not get the events of the meantime.
            (path / place).unlink(missing_ok=True)
    return processes + [
        HookProcess(
            settings=TrackerSettings(
                run_dir=str(path),
                launch_directory=launch_directory,
                time_limit_s=TRACKER_S,
                tracker=sink,
                replay_command=(command[-1], "replay", "--trust"),
            ),
            module="populations.tracking",
            name=sink,
            alert="sink_failed",
            subject=sink,
            end_s=TRACKER_END_S,
        )
        for sink in config.metrics.sinks
        if sink in TRACKERS
    ]


def _export_settings(
    config: RunConfig, run_dir: Path, launch_directory: str, command: Sequence[str]
) -> HookSettings:
    # The user trusted the code by launching the run, and the export imports no other code.
    export = (
        *(*command, "export", "--trust"),
        *("{run}", "--player", "{player}", "--to", f"{{run}}/{EXPORTS}/{{to}}"),
        # The card has the league's rating; matches for a record would take most of the time.
        *("--matches", "0", "--force"),
    )
    return HookSettings(
        run_dir=str(run_dir),
        launch_directory=launch_directory,
        hooks={EXPORT: (export,)},
        place=EXPORTS_PLACE,
        time_limit_s=EXPORT_S,
        limit=config.hooks.queue,
        keep_exports=config.checkpoints.keep_exports,
    )


def check_config(config: RunConfig, *, launch_directory: str) -> None:
    """Check that all hooks of a configuration can be called.

    Raises:
        ConfigError: If a hook cannot be called; the message names all such hooks.
    """
    check_hooks(hook_settings(config, Path(), launch_directory=launch_directory))


def hook_settings(config: RunConfig, run_dir: Path, *, launch_directory: str) -> HookSettings:
    """Return the settings of the process that calls hooks."""
    hooks = config.hooks
    return HookSettings(
        run_dir=str(run_dir),
        launch_directory=launch_directory,
        hooks=dict(hooks.by_kind),
        place=PLACE,
        time_limit_s=hooks.time_limit_s,
        limit=hooks.queue,
    )
