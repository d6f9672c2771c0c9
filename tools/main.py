"""`arena`: one command with subcommands.

The modules of the subcommands import only typer and the standard library at their top, so that
``arena --help`` answers at once.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from . import bench, envs, evaluate, export, launch, league, learner, rate, simulate, verify
from ._output import exit_code

app = typer.Typer(
    name="arena",
    help="Train populations of policies against each other in PettingZoo environments.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command()(launch.launch)
app.command()(learner.learner)
app.command()(league.league)
app.command()(export.export)
app.command()(evaluate.evaluate)
app.command()(rate.rate)
app.command()(simulate.simulate)
app.command()(verify.verify)
app.command()(bench.bench)
app.add_typer(envs.app, name="envs")


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        sys.stdout.write(f"arena {version('arena-league')}\n")
        raise typer.Exit


@app.callback()
def arena(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Train populations of policies against each other in PettingZoo environments."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command and exit with its code.

    Args:
        argv: The arguments; None: those of the process.

    Raises:
        SystemExit: Always. 0 done; 2 bad usage or configuration; 3 the run failed; 4 already
            running; 5 storage; 130 interrupted.
    """
    try:
        app(args=None if argv is None else list(argv), prog_name="arena")
    except Exception as error:  # the boundary: whatever was not handled becomes a line and a code
        sys.exit(_report(error))
    finally:
        _flush()


def _report(error: Exception) -> int:
    from arena.errors import ArenaError

    if isinstance(error, ArenaError):
        sys.stderr.write(f"arena: {' '.join(str(error).split())}\n")
    else:
        traceback.print_exception(error)
    return exit_code(error)


def _flush() -> None:
    """Write out what is buffered; a reader that has gone away (``| head``) is no error."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # Otherwise the interpreter tries again when it ends, and complains.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
