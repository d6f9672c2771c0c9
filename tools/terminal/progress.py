"""Progress on a terminal, and a hard limit of time.

Tests: `tests/tools/envs/test_command.py`.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from populations.views.texts import plain

from .output import log_console, tell

# Drawing a line takes longer than many steps do, so most steps draw nothing.
_SHOW_EVERY = 32

GRACE_S = 5.0
"""Seconds that a command has to end by itself after its time."""

FAILED = 3


def shown(text: str) -> str:
    """Return a text that rich's bars, which read markup, show as it is."""
    from rich.markup import escape

    return escape(plain(text))


@contextmanager
def count_progress(
    what: str, *, total: float | None = None
) -> Iterator[Callable[..., None] | None]:
    """Show a bar on standard error if that is a terminal; it disappears at the end.

    Yields:
        A function to call with the count that is done, and the total where that was not known;
            None without a terminal.
    """
    screen = log_console()
    if not screen.is_terminal:
        # None tells the caller that it need not count.
        yield None
        return
    from rich.progress import Progress

    with Progress(console=screen, transient=True) as bar:
        task = bar.add_task(shown(what), total=total)
        yield lambda done, total=None: bar.update(task, completed=done, total=total)


class PlayProgress:
    """An `arena.matches.match.Progress` that counts steps of the environments."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._num_steps = 0
        self._what = ""

    def begin(self, what: str) -> None:
        """Say what is played from now on."""
        self._what = what
        self._show(what)

    def advance(self, agent_steps: int = 0) -> None:
        """Count one turn of the loop."""
        self._num_steps += 1
        if self._num_steps % _SHOW_EVERY == 0:
            self._show(f"{self._what}: {self._num_steps:,} steps")


@contextmanager
def play_progress(what: str) -> Iterator[PlayProgress]:
    """Show a line on standard error if that is a terminal; it disappears at the end."""
    screen = log_console()
    if not screen.is_terminal:
        yield PlayProgress(lambda text: None)
        return
    with screen.status(shown(what)) as status:
        progress = PlayProgress(lambda text: status.update(shown(text)))
        progress.begin(what)
        yield progress


@contextmanager
def stage_progress(limit_s: float) -> Iterator[Callable[[str], None]]:
    """Show the current stage on standard error: a line that disappears, or plain lines.

    Args:
        limit_s: Seconds that all of it may take.

    Yields:
        A function that takes the name of the stage that begins.
    """
    screen = log_console()
    if not screen.is_terminal:
        yield tell
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        TextColumn(f"of at most {limit_s:g} s"),
    )
    with Progress(*columns, console=screen, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda what: bar.update(task, description=shown(what))


@contextmanager
def hard_limit(limit_s: float) -> Iterator[None]:
    """End the process if a call that does not return to Python keeps it beyond its time."""

    def end() -> None:
        sys.stderr.write(
            f"arena: not done after {limit_s:g} s: a call into the environment does not return\n"
        )
        # `os._exit` does not flush. An exception would wait for the blocked call to return.
        sys.stderr.flush()
        os._exit(FAILED)

    # A thread is used, because Python runs signal handlers only between its own instructions.
    timer = threading.Timer(limit_s + GRACE_S, end)
    # A daemon thread does not keep the process from ending earlier.
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
