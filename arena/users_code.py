"""Messages about errors in users' code: a line that names the error, then the user's own frames.

Bots, rules, environments and the like are called from deep inside Arena, so most of a traceback is
Arena's. The few lines of the user's files are those that the user can fix. Torch-free.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sysconfig
import traceback
from collections.abc import Iterator
from types import FrameType

from arena.errors import ArenaError, ConfigError

logger = logging.getLogger(__name__)

BEFORE_LINES = "\n  File "
"""Beginning of the lines of a traceback in a message; the text before is one line."""

ARENA_PACKAGES = frozenset({"arena", "populations"})
MAX_FRAMES = 8
"""Most frames of a traceback that are shown, the innermost: a recursion has a thousand."""

MAX_MESSAGE = 1000
"""Length at which the text of an error is cut off."""


def raised(what: str, error: BaseException) -> str:
    """Return one message: the code and its error, then the user's own lines of the traceback.

    Args:
        what: Name of the code and its task ("the matchmaker's ``draw``").
        error: Error that it raised.
    """
    return f"{what} raised {named(error)}{own_lines(error)}"


def named(error: BaseException) -> str:
    """Return the class of an exception and its text, on one line."""
    # On one line, as the lines after it are those of the traceback (`split_lines`).
    text = " ".join(_text(error).split())
    text = text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]}..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def own_lines(error: BaseException) -> str:
    """Return the frames of an exception that are in a user's files; empty if there are none.

    If all of them are in installed packages, those are shown: an environment may be one. Frames of
    Arena are never shown.
    """
    frames: dict[str, list[traceback.FrameSummary]] = {"user": [], "package": [], "other": []}
    for frame, line in traceback.walk_tb(error.__traceback__):
        # Source lines are read from the files; the marks below them would only add lines.
        summary = traceback.FrameSummary(frame.f_code.co_filename, line, frame.f_code.co_name)
        frames[_owner(frame)].append(summary)
    # A file that does not compile has no frame of its own.
    if isinstance(error, SyntaxError) and error.filename:
        broken = traceback.FrameSummary(
            error.filename, error.lineno or 1, "<module>", line=error.text
        )
        frames["user"].append(broken)
    # The innermost ones are at the end, nearest to the error.
    shown = (frames["user"] or frames["package"])[-MAX_FRAMES:]
    return "".join(f"\n{entry.rstrip()}" for entry in traceback.format_list(shown))


def place_of(frame: FrameType | None) -> str:
    """Return the place of execution in a user's files, else in an installed package, else ""."""
    # walk_stack begins with the innermost frame: the first of a kind is where the code is.
    frames = list(traceback.walk_stack(frame))
    for owner in ("user", "package"):
        for at, line in frames:
            if _owner(at) == owner:
                return f'File "{at.f_code.co_filename}", line {line}, in {at.f_code.co_name}'
    return ""


@contextlib.contextmanager
def users_code(what: str, *, raises: type[ArenaError] = ConfigError) -> Iterator[None]:
    """Replace an exception of a user's code by ``raises``, with a short message.

    The full traceback goes to the log.

    Args:
        what: Name of the code and its task ("the matchmaker's ``draw``").
        raises: Class of the error that replaces the user's.

    Raises:
        ArenaError: An error of Arena's own passes unchanged; all others become ``raises``.
    """
    try:
        yield
    # It has its message already, perhaps from a nested `users_code`.
    except ArenaError:
        raise
    except Exception as error:
        # info: the message goes to the user in any case; the whole traceback is for a closer look.
        logger.info("%s raised", what, exc_info=error)
        raise raises(raised(what, error)) from error


def split_lines(message: str) -> tuple[str, str]:
    """Split a message into its first line and the lines of a traceback after it, if any."""
    first, marker, lines = message.partition(BEFORE_LINES)
    return first, f"{marker}{lines}"


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        # A user's exception is a user's code, too.
        return "(its text cannot be read)"


def _owner(frame: FrameType) -> str:
    """Return the owner of a frame: ``user``, an installed ``package``, or ``other``."""
    return owner_of(str(frame.f_globals.get("__name__", "")), frame.f_code.co_filename)


def owner_of(module: str, path: str) -> str:
    """Return the owner of a module's file: ``user``, an installed ``package``, or ``other``."""
    # <frozen importlib._bootstrap>, <string>: there is no file to show.
    if module.partition(".")[0] in ARENA_PACKAGES or path.startswith("<"):
        return "other"
    # A script that was started by a relative path has it as its file name.
    path = os.path.abspath(path)
    if _is_below(path, "purelib", "platlib"):
        return "package"
    # After packages, as site-packages lies below stdlib.
    return "other" if _is_below(path, "stdlib", "platstdlib") else "user"


def _is_below(path: str, *kinds: str) -> bool:
    """Return whether a file is in Python's directories of these kinds."""
    # Those of the interpreter that runs, a virtual environment's included.
    places = sysconfig.get_paths()
    # With a separator at the end: /lib/python3 is no parent of /lib/python3-local.
    return path.startswith(tuple(os.path.join(places[kind], "") for kind in kinds))
