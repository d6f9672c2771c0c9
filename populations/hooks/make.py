"""The processes that a configuration asks for: of hooks, of exports, and one for each tracker."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from arena.metrics.tracker import TRACKERS
from populations.config.run_config import RunConfig
from populations.hooks.calls import EXPORT, begin_place
from populations.hooks.process import EXPORTS, HookSettings, TrackerSettings
from populations.hooks.supervisor import HookProcess, check_hooks

PLACE, EXPORTS_PLACE = "hooks.json", "exports.json"
"""Files in a run directory with the calls that were made."""

EXPORT_S = 600.0
"""Time for one export."""

EXPORTS_END_S = 600.0
"""Longest time that the end of a run waits for exports."""

TRACKER_S, TRACKER_END_S = 120.0, 300.0
"""Time in which a tracker must begin, or take some points; and the longest time that the end of a
run waits for one, which may have to send them."""


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
        command: Command that is ``arena``, without its arguments.
        num_events: Number of events that the journal has.
        is_new: Whether no controller has served the run before, so that hooks begin with its first
            event.

    Raises:
        StorageError: If the disk refuses.
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
            # Those that come back at a later resume begin there, not where the last ones ended.
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
    # The launch was the user's word, and these import nothing else.
    export = (
        *(*command, "export", "--trust"),
        *("{run}", "--player", "{player}", "--to", f"{{run}}/{EXPORTS}/{{to}}"),
        # The card has the league's rating; a record would take most of an export's time.
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
        ConfigError: Names those that cannot.
    """
    check_hooks(hook_settings(config, Path(), launch_directory=launch_directory))


def hook_settings(config: RunConfig, run_dir: Path, *, launch_directory: str) -> HookSettings:
    """Return the settings of the process of hooks."""
    hooks = config.hooks
    return HookSettings(
        run_dir=str(run_dir),
        launch_directory=launch_directory,
        hooks=dict(hooks.by_kind),
        place=PLACE,
        time_limit_s=hooks.time_limit_s,
        limit=hooks.queue,
    )
