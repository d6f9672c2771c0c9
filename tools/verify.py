"""`arena verify`: every invariant that a run directory can show, and what puts a run right.

Tests: `tests/faults/test_repair.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .terminal.options import AsJson, RunDirectory
from .terminal.output import console, print_json

if TYPE_CHECKING:
    from populations.audit.repair import Repair
    from populations.records.rows import Json

STORAGE_EXIT_CODE = 5


def verify(
    run: RunDirectory,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Replace a damaged journal by its last backup, add the checkpoints made since, "
            "and set damaged checkpoints aside.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check every invariant of a run directory; exit 5 if one is broken."""
    from arena.errors import ConfigError
    from populations.audit.repair import repair_run
    from populations.audit.verify import verify_run

    if not run.is_dir():
        raise ConfigError(f"RUN must be a run directory, got {str(run)!r}")
    # The repair runs first, so that the check shows whether it was sufficient.
    repaired = repair_run(run) if repair else None
    report = verify_run(run)
    if as_json:
        document: dict[str, Json] = {
            "run": str(run),
            "faults": report.faults,
            "notes": report.notes,
        }
        print_json(document | _document(repaired))
    else:
        if repaired is not None:
            _print_repair(repaired, is_sound=not report.faults)
        _print_findings(run, faults=report.faults, notes=report.notes)
    # The exit comes after printing, so that programs get the document with any exit code.
    if report.faults:
        raise typer.Exit(STORAGE_EXIT_CODE)


def _document(repaired: Repair | None) -> dict[str, Json]:
    if repaired is None:
        return {}
    return {
        "repair": {
            "restored": repaired.restored,
            "lost_assignments_at_least": repaired.lost_assignments,
            "lost": None if repaired.loss is None else repaired.loss.data,
            "events": [
                {"kind": event.kind, "subject": event.subject, "data": event.data}
                for event in repaired.events
            ],
        }
    }


def _print_repair(repaired: Repair, *, is_sound: bool) -> None:
    if repaired.loss is not None:
        _print_line(f"{repaired.loss}; a resume goes on without it")
    for event in repaired.events:
        numbers = ", ".join(f"{name} {value}" for name, value in event.data.items())
        _print_line(f"repair: {' '.join(filter(None, (event.kind, event.subject)))}: {numbers}")
    if repaired.restored:
        _print_line(
            f"the last backup was restored; at least {repaired.lost_assignments} assignments are "
            "lost: their matches, metrics and decisions"
        )
    if not is_sound:
        _print_line("the faults that follow are left: no repair can mend them")
    elif not repaired.events:
        _print_line("there was nothing to repair")


def _print_findings(run: Path, *, faults: list[str], notes: list[str]) -> None:
    for kind, findings in (("fault", faults), ("note", notes)):
        for finding in findings:
            _print_line(f"{kind}: {finding}")
    if not faults:
        _print_line(f"{run}: no invariant is broken")


def _print_line(text: str) -> None:
    """Print a text that any process may have written: no markup, no controls."""
    console().print("".join(c if c.isprintable() else "?" for c in text))
