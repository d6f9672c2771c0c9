"""`arena verify`: every invariant that a run directory can show."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ._output import console, print_json

STORAGE_EXIT_CODE = 5


def verify(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    json_: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Check every invariant that a run directory can show; exit 5 where one is broken."""
    from arena.errors import ConfigError
    from populations.storage.verify import verify_run

    if not run.is_dir():
        raise ConfigError(f"RUN must be a run directory, got {str(run)!r}")
    report = verify_run(run)
    if json_:
        print_json({"run": str(run), "faults": report.faults, "notes": report.notes})
    else:
        _print_findings(run, faults=report.faults, notes=report.notes)
    if report.faults:
        raise typer.Exit(STORAGE_EXIT_CODE)


def _print_findings(run: Path, *, faults: list[str], notes: list[str]) -> None:
    """One line each. Texts are from files that anybody may have written: no markup, no controls."""
    output = console()
    for kind, findings in (("fault", faults), ("note", notes)):
        for finding in findings:
            text = "".join(c if c.isprintable() else "?" for c in finding)
            output.print(f"{kind}: {text}", markup=False)
    if not faults:
        output.print(f"{run}: no invariant is broken", markup=False)
