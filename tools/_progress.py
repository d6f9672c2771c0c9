"""Shows that matches go on, where somebody can see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ._output import log_console, plain

_SHOW_EVERY = 32


def shown(text: str) -> str:
    """A text that rich's bars, which read markup, show as it is."""
    from rich.markup import escape

    return escape(plain(text))


@contextmanager
def count_progress(what: str, *, total: int) -> Iterator[Callable[[int], None] | None]:
    """A bar on standard error if that is a terminal; it disappears at the end.

    Yields:
        To be told how much is done; None where nobody could see it.
    """
    screen = log_console()
    if not screen.is_terminal:
        yield None
        return
    from rich.progress import Progress

    with Progress(console=screen, transient=True) as bar:
        task = bar.add_task(shown(what), total=total)
        yield lambda completed: bar.update(task, completed=completed)


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
    """A line on standard error if that is a terminal; it disappears at the end."""
    screen = log_console()
    if not screen.is_terminal:
        yield PlayProgress(lambda text: None)
        return
    with screen.status(shown(what)) as status:
        progress = PlayProgress(lambda text: status.update(shown(text)))
        progress.begin(what)
        yield progress
