"""`arena rewind`: put a policy back on one of its kept checkpoints.

Tests: `tests/tools/test_rewind.py`, `tests/faults/test_nth_fault.py`.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .terminal.options import AsJson, Trust
from .terminal.output import console, print_json

if TYPE_CHECKING:
    from populations.records.rows import CheckpointRow, PolicyRow
    from populations.records.tables import Tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewound:
    """Result of a rewind.

    Attributes:
        before: Policy as it was.
        after: Policy as it goes on.
        checkpoint: Checkpoint that it goes on from.
    """

    before: PolicyRow
    after: PolicyRow
    checkpoint: CheckpointRow


def rewind(
    player: Annotated[
        str,
        typer.Argument(
            metavar="RUN:POLICY@STEPS",
            help="Kept checkpoint to go back to (runs/a:player/p003@3195847), or its directory.",
        ),
    ],
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Put a policy back on one of its kept checkpoints, in a run that is not going on.

    Weights, optimizer, normalizers and hyperparameters are those of then. Identity and agent steps
    go on, the generation rises; ghosts and results stay. `arena league RUN checkpoints` lists what
    is kept.
    """
    from populations.controller.server.server import utc_now
    from populations.league.names import is_name

    from .players.resolve import find_in_stopped_run

    run_dir, name = find_in_stopped_run(
        player,
        is_name=lambda name: is_name(name) and "@" in name,
        takes="rewind takes RUN:POLICY@STEPS, as in runs/a:player/p003@3195847, or a checkpoint's "
        "directory",
    )
    done = rewind_policy(run_dir, name, utc=utc_now(), trust=trust)
    document: dict[str, object] = {
        "run": str(run_dir),
        "policy": done.after.policy,
        "checkpoint": done.checkpoint.key,
        "checkpoint_agent_steps": done.checkpoint.agent_steps,
        "agent_steps": done.after.agent_steps,
        "generation": done.after.generation,
        "hyperparameters": dict(done.after.hyperparameters),
    }
    if as_json:
        print_json(document)
        return
    console().print(
        f"{done.after.policy} goes on from {done.checkpoint.key}: weights, optimizer, normalizers "
        f"and hyperparameters of {done.checkpoint.agent_steps:,} agent steps. It stays at "
        f"{done.after.agent_steps:,} agent steps and is in generation {done.after.generation}.\n"
        f"Go on: arena launch --resume --run-dir {shlex.quote(str(run_dir))}",
        markup=False,
        soft_wrap=True,
        highlight=False,
    )


def rewind_policy(run_dir: Path, name: str, *, utc: str, trust: bool = False) -> Rewound:
    """Rewind under the run's lock, in one commit: a kill leaves the old state or the new one.

    Args:
        run_dir: Run directory.
        name: Policy and steps, or a checkpoint's directory relative to the run's.
        utc: Time of the event.
        trust: Whether code that run.yaml names may be imported, wherever it is from.

    Raises:
        ConfigError: If the run keeps no such checkpoint.
        RunInUse: If the run is going on.
        CheckpointError: If the checkpoint is damaged; nothing was changed.
        StorageError: If the disk refuses.
    """
    from arena.checkpoints.files import resolve_key, verify_directory
    from populations.config.trust import trusted
    from populations.controller.evolution.rewind import rewind as rewind_rows
    from populations.controller.server.run_directory import OpenRun
    from populations.controller.state.events import Now

    from .launch.serving import held_run

    with (
        held_run(run_dir) as found,
        OpenRun(
            run_dir,
            with_sinks=False,
            # The rules of matchmaking and PBT are made with the run's state.
            launch_directory=trusted(found, run_dir, trust=trust).launch_directory,
        ) as run,
    ):
        state = run.state
        checkpoint = _find(state.tables, name, run_dir=run_dir)
        # Every byte: what a policy goes on from is never found to be damaged later.
        verify_directory(resolve_key(run_dir, checkpoint.key))
        before = state.tables.policies[checkpoint.policy]
        # No duration or deadline follows from this event.
        tx = state.begin(Now(monotonic_s=0.0, utc=utc))
        after = rewind_rows(state, tx, checkpoint)
        run.journal.commit(tx.rows)
    return Rewound(before=before, after=after, checkpoint=checkpoint)


def _find(tables: Tables, name: str, *, run_dir: Path) -> CheckpointRow:
    from arena.errors import ConfigError
    from populations.league.names import find_player, is_name

    from .players.in_run import kept_checkpoint

    if not is_name(name):
        row = tables.checkpoints.get(name)
        if row is None or row.state != "present":
            raise ConfigError(f"{run_dir} keeps no checkpoint at {name}: a ghost has no optimizer")
        return row
    subject = find_player(name, tables, kept=True, where=run_dir)
    found = kept_checkpoint(tables, subject)
    if found is None:
        raise ConfigError(
            f"{run_dir} keeps no checkpoint of {subject.player}, but a ghost, which has no "
            "optimizer: launch --init-from starts from it"
        )
    return found
