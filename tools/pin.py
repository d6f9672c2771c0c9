"""`arena pin`: keep a player of a run for ever.

Tests: `tests/tools/test_pin.py`, `tests/faults/test_nth_fault.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from .terminal.options import AsJson, Code, Trust
from .terminal.output import print_json, say

if TYPE_CHECKING:
    from populations.records.rows import CheckpointRow, GhostRow
    from populations.records.tables import Tables


def pin(
    player: Annotated[
        str,
        typer.Argument(
            metavar="RUN:PLAYER",
            help="Ghost or kept checkpoint (runs/a:player/p003@3195847), or its directory; of a "
            "policy (runs/a:player/p003) its latest checkpoint.",
        ),
    ],
    off: Annotated[bool, typer.Option("--off", help="End of an earlier pin.")] = False,
    trust: Trust = False,
    code: Code = None,
    as_json: AsJson = False,
) -> None:
    """Keep a player of a run that is not going on: no thinning and no retention removes it.

    A pinned ghost stays in the pool of opponents and counts towards `ghosts.keep`. `arena league
    RUN checkpoints` shows what is pinned.
    """
    from populations.controller.server.server import utc_now
    from populations.league.names import is_name

    from .players.resolve import find_in_stopped_run

    run_dir, name = find_in_stopped_run(
        player,
        is_name=is_name,
        takes="pin takes RUN:PLAYER, as in runs/a:player/p003@3195847 or runs/a:player/p003, or a "
        "checkpoint's or ghost's directory",
    )
    pinned, directories, changed = pin_player(
        run_dir, name, pinned=not off, utc=utc_now(), trust=trust
    )
    document: dict[str, object] = {
        "run": str(run_dir),
        "player": pinned,
        "pinned": not off,
        "changed": changed,
        "directories": list(directories),
    }
    if as_json:
        print_json(document)
        return
    state = "not pinned" if off else "pinned"
    before = "" if changed else ", as before"
    say(f"{pinned} is {state}{before}: {' and '.join(directories)}")


def pin_player(
    run_dir: Path, name: str, *, pinned: bool, utc: str, trust: bool = False
) -> tuple[str, tuple[str, ...], bool]:
    """Pin a player under the run's lock, in one commit, or end its pin.

    Args:
        run_dir: Run directory.
        name: Policy, policy and steps, or a directory relative to the run's.
        pinned: Whether it is to stay.
        utc: Time of the event.
        trust: Whether code that run.yaml names may be imported, wherever it is from.

    Returns:
        Policy and agent steps; directories of its checkpoint and its ghost, those that there are,
        relative to the run's; and whether it was otherwise before.

    Raises:
        ConfigError: If the run keeps no such player.
        RunInUse: If the run is going on.
        StorageError: If the disk refuses.
    """
    from arena.types import ghost_id
    from populations.controller.state.events import Now

    from .launch.serving import stopped_run

    with stopped_run(run_dir, trust=trust) as run:
        rows = _find(run.state.tables, name, run_dir=run_dir)
        player = ghost_id(rows[0].policy, agent_steps=rows[0].agent_steps)
        directories = tuple(row.key for row in rows)
        changed = [replace(row, pinned=pinned) for row in rows if row.pinned != pinned]
        if changed:
            # No duration or deadline depends on this event, so its monotonic time may be 0.
            tx = run.state.begin(Now(monotonic_s=0.0, utc=utc))
            for row in changed:
                tx.put(row)
            kind = "pinned" if pinned else "unpinned"
            tx.add_event(kind, player, directories=list(directories))
            run.journal.commit(tx.rows)
    return player, directories, bool(changed)


def _find(tables: Tables, name: str, *, run_dir: Path) -> list[CheckpointRow | GhostRow]:
    """Return the rows of a player that is kept: of its checkpoint, its ghost, or both."""
    from arena.errors import ConfigError
    from populations.league.names import find_player, is_name

    from .players.in_run import kept_at, kept_checkpoint, kept_ghost

    if is_name(name) and "@" in name:
        subject = find_player(name, tables, kept=True, where=run_dir)
        found = (kept_checkpoint(tables, subject), kept_ghost(tables, subject))
        return [row for row in found if row is not None]
    key: str | None = name
    if is_name(name):
        subject = find_player(name, tables, where=run_dir)
        name, key = subject.player, tables.policies[subject.policy].checkpoint
    rows = kept_at(tables, key)
    if not rows:
        raise ConfigError(f"{run_dir} keeps no checkpoint or ghost of {name}")
    return rows
