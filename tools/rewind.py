"""`arena rewind`: put a policy back on one of its kept checkpoints or ghosts.

Tests: `tests/tools/test_pin.py`, `tests/faults/test_nth_fault.py`.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .terminal.options import AsJson, Code, Trust
from .terminal.output import print_json, say

if TYPE_CHECKING:
    from populations.records.rows import CheckpointRow, GhostRow, PolicyRow
    from populations.records.tables import Tables


def rewind(
    player: Annotated[
        str,
        typer.Argument(
            metavar="RUN:POLICY@STEPS",
            help="Kept checkpoint or ghost to go back to (runs/a:p003@3195847, runs/a:p003@best), "
            "or its directory.",
        ),
    ],
    trust: Trust = False,
    code: Code = None,
    as_json: AsJson = False,
) -> None:
    """Put a policy back on one of its kept checkpoints or ghosts, in a run that is not going on.

    Weights, optimizer, normalizers and hyperparameters are those of then; on a ghost, which has no
    optimizer, it goes on with a fresh one. Identity and agent steps go on, the generation rises;
    ghosts and results stay. `arena league RUN checkpoints` lists what is kept.
    """
    from populations.controller.server.server import utc_now
    from populations.league.names import is_name

    from .players.resolve import find_in_stopped_run

    run_dir, name = find_in_stopped_run(
        player,
        is_name=lambda name: is_name(name) and "@" in name,
        takes="rewind takes RUN:POLICY@STEPS, as in runs/a:player/p003@3195847, or the directory "
        "of a checkpoint or a ghost",
    )
    after, then = rewind_policy(run_dir, name, utc=utc_now(), trust=trust)
    document: dict[str, object] = {
        "run": str(run_dir),
        "policy": after.policy,
        "checkpoint": then.key,
        "checkpoint_agent_steps": then.agent_steps,
        "fresh_optimizer": after.checkpoint is None,
        "agent_steps": after.agent_steps,
        "generation": after.generation,
        "hyperparameters": dict(after.hyperparameters),
    }
    if as_json:
        print_json(document)
        return
    optimizer = "" if after.checkpoint else ", and a fresh optimizer"
    say(
        f"{after.policy} goes on from {then.key}: weights, "
        f"{'' if optimizer else 'optimizer, '}normalizers and hyperparameters of "
        f"{then.agent_steps:,} agent steps{optimizer}. It stays at "
        f"{after.agent_steps:,} agent steps and is in generation {after.generation}.\n"
        f"Go on: arena launch --resume --run-dir {shlex.quote(str(run_dir))}"
    )


def rewind_policy(
    run_dir: Path, name: str, *, utc: str, trust: bool = False
) -> tuple[PolicyRow, CheckpointRow | GhostRow]:
    """Rewind under the run's lock, in one commit: a kill leaves the old state or the new one.

    Args:
        run_dir: Run directory.
        name: Policy and steps, or a directory of a checkpoint or a ghost, relative to the run's.
        utc: Time of the event.
        trust: Whether code that run.yaml names may be imported, wherever it is from.

    Raises:
        ConfigError: If the run keeps no such checkpoint or ghost.
        RunInUse: If the run is going on.
        CheckpointError: If it is damaged; nothing was changed.
        StorageError: If the disk refuses.
    """
    from arena.checkpoints.files import resolve_key, verify_directory
    from arena.checkpoints.manifest import OPTIMIZER
    from populations.controller.evolution.rewind import rewind as rewind_rows
    from populations.controller.state.events import Now
    from populations.records.rows import GhostRow

    from .launch.serving import stopped_run

    with stopped_run(run_dir, trust=trust) as run:
        state = run.state
        then = _find(state.tables, name, run_dir=run_dir)
        # Every byte is verified, because the policy continues from this checkpoint.
        without = frozenset({OPTIMIZER} if isinstance(then, GhostRow) else ())
        verify_directory(resolve_key(run_dir, then.key), without=without)
        # No duration or deadline depends on this event, so its monotonic time may be 0.
        tx = state.begin(Now(monotonic_s=0.0, utc=utc))
        after = rewind_rows(state.settings, state.fits, tx, then)
        run.journal.commit(tx.rows)
    return after, then


def _find(tables: Tables, name: str, *, run_dir: Path) -> CheckpointRow | GhostRow:
    from arena.errors import ConfigError
    from populations.league.names import find_player, is_name

    from .players.in_run import kept_at, kept_checkpoint, kept_ghost

    if is_name(name):
        subject = find_player(name, tables, kept=True, where=run_dir)
        # A checkpoint is preferred to a ghost, because it has the optimizer state of that time.
        found = kept_checkpoint(tables, subject) or kept_ghost(tables, subject)
        assert found is not None, "a kept player has a ghost or a checkpoint"
        return found
    for row in kept_at(tables, name):
        return row
    raise ConfigError(f"{run_dir} keeps no checkpoint or ghost at {name}")
