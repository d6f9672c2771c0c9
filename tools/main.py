"""`arena`: one command with subcommands.

The modules of the subcommands import only typer and the standard library at their top, so that
``arena --help`` answers at once.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperGroup

from arena.errors import ArenaError
from arena.processes.guard import contain
from arena.processes.settings import has_run, keep_directory
from arena.users_code import pass_interrupt, raised
from populations.views.texts import one_line, plain

from .bench.command import bench
from .compare import compare
from .envs.command import app as envs
from .evaluate.command import evaluate
from .export.command import export
from .launch.command import launch
from .league.command import league
from .learner import learner
from .pin import pin
from .play.command import play
from .presets import presets
from .rate import rate
from .replay.command import replay
from .rewind import rewind
from .simulate import simulate
from .terminal.exit_codes import exit_code
from .terminal.options import TakesKeys
from .terminal.output import document_stream, paragraphs, set_output_aside
from .terminal.signals import AtOnce, leave_on_signals
from .verify import verify
from .web.command import web


class _Commands(TyperGroup):
    """All commands. What users' code raises in one of them ends it as an error does."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401  (typer's own copy of click)
        """Run the command that the arguments name."""
        try:
            return super().invoke(ctx)
        except Exception:
            raise
        except BaseException as error:
            # rich exits if the reader has closed the pipe; typer handles that error properly.
            if isinstance(error.__context__, BrokenPipeError):
                raise error.__context__ from None
            # `exit()` in an environment would otherwise end the command silently with code 0.
            pass_interrupt(error)
            raise ArenaError(raised("code that this command runs", error)) from error


app = typer.Typer(
    name="arena",
    cls=_Commands,
    help="Train populations of policies against each other in PettingZoo environments.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
COMMANDS = (
    *(launch, league, web, replay, play, export, evaluate, compare, presets, rate, simulate),
    *(rewind, pin, verify, learner, bench),
)
for command in COMMANDS:
    # In commands with KEY=VALUE an unknown option may be meant as a key.
    is_configured = command in (launch, simulate, bench)
    app.command(cls=TakesKeys if is_configured else None, help=paragraphs(command))(command)
app.add_typer(envs, name="envs")


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        sys.stdout.write(f"arena {version('arena-league')}\n")
        # An eager option is handled before a missing command is reported.
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
            running; 5 storage; 75 a learner to be started again; 130 and 143 interrupted.
    """
    arguments = sys.argv[1:] if argv is None else list(argv)
    # This process belongs to the command, so child processes end with it. The page is an exception:
    # it runs no user code, and a browser that it opens may have other pages.
    if argv is None and arguments[:1] != [web.__name__]:
        contain()
    # The current stream is kept, because typer replaces sys.stdout when the reader has closed the
    # pipe.
    output = sys.stdout
    set_output_aside(arguments)
    if argv is None:
        keep_directory()
    try:
        # These handlers are the outermost ones: launch installs its own, which save, and removes
        # them.
        with leave_on_signals():
            app(args=arguments, prog_name="arena")
    except AtOnce as ended:
        # Threads may be in the middle of any work, but nothing would be lost.
        os._exit(int(str(ended.code)))
    except SystemExit as ended:
        # typer exits with 1 when the reader has closed the pipe (``| head``), which is not an
        # error.
        code = 0 if ended.code == 1 and sys.stdout is not output else ended.code
    except Exception as error:  # the boundary: an unhandled error becomes a line and an exit code
        code = _report(error)
    finally:
        _flush(output)
    if argv is None and has_run():
        # Threads of user code, or its exit handlers, could keep the process from ending.
        os._exit(code if isinstance(code, int) else 0)
    sys.exit(code)


def _report(error: Exception) -> int:
    from arena.errors import ConfigFaults
    from arena.files import words_of
    from arena.users_code import split_lines

    with contextlib.suppress(OSError):  # its reader may have closed the pipe
        # All faults of a configuration are printed at once, one per line.
        if isinstance(error, ConfigFaults) and len(error.faults) > 1:
            lines = [f"{len(error.faults)} things are wrong:", *error.faults]
            sys.stderr.write("arena: " + "\n  ".join(map(one_line, lines)) + "\n")
        elif isinstance(error, ArenaError):
            # Lines of user code are kept; Arena's own text becomes one line.
            said, code = split_lines(str(error))
            sys.stderr.write(f"arena: {one_line(said)}{plain(code, keep=chr(10))}\n")
        elif isinstance(error, OSError) and error.filename is not None:
            # For disk, permission and descriptor errors the system's message names the file and the
            # cause.
            where = f"{error.filename}: {words_of(error)}"
            sys.stderr.write(f"arena: {one_line(where)}\n")
        elif isinstance(error, MemoryError):
            sys.stderr.write("arena: this machine, or this process's limit, has no memory left\n")
        else:
            # Any other error is a bug of Arena, whose report needs the traceback.
            traceback.print_exception(error)
        sys.stderr.flush()
    return exit_code(error)


def _flush(output: TextIO) -> None:
    """Write out what is buffered; a reader that has gone away is no error."""
    # Streams are flushed here, because an error at the interpreter's exit could not be caught.
    for stream in (output, document_stream(), sys.stderr):
        try:
            stream.flush()
        except OSError:
            # Otherwise the interpreter flushes again at exit and prints an error.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        # User code has closed the stream.
        except ValueError:
            continue


if __name__ == "__main__":
    main()
