"""What is said when users' code raises: one message, with the lines of their own files.

Bots, rules, environments and the like are called from deep inside of Arena; a whole traceback is
mostly Arena's. Whatever a user can mend is in the few lines of the user's files. Torch-free.
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
"""How the lines of a traceback begin in a message; what is before is one line."""

OWN_PACKAGES = frozenset({"arena", "populations"})
MAX_FRAMES = 8
"""Of a traceback that are shown, the innermost: a recursion has a thousand."""

MAX_MESSAGE = 1000
"""Letters of what was raised."""


def raised(what: str, error: BaseException) -> str:
    """One message: who raised what, then the user's own lines of the traceback.

    Args:
        what: Whose code it is, and what it was doing.
        error: What it raised.
    """
    return f"{what} raised {named(error)}{own_lines(error)}"


def named(error: BaseException) -> str:
    """The class of an exception and its text, on one line."""
    text = " ".join(_text(error).split())
    text = text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]}..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def own_lines(error: BaseException) -> str:
    """The frames of an exception that are in a user's files; empty if there are none.

    Where all of it happened in installed packages, their frames are shown: an environment may be
    one. Frames of Arena never are.
    """
    frames: dict[str, list[traceback.FrameSummary]] = {"user": [], "package": [], "other": []}
    for frame, line in traceback.walk_tb(error.__traceback__):
        # Source lines are read from the files; marks below them would say less in more lines.
        summary = traceback.FrameSummary(frame.f_code.co_filename, line, frame.f_code.co_name)
        frames[_owner(frame)].append(summary)
    if isinstance(error, SyntaxError) and error.filename:
        broken = traceback.FrameSummary(
            error.filename, error.lineno or 1, "<module>", line=error.text
        )
        frames["user"].append(broken)
    shown = (frames["user"] or frames["package"])[-MAX_FRAMES:]
    return "".join(f"\n{entry.rstrip()}" for entry in traceback.format_list(shown))


def place_of(frame: FrameType | None) -> str:
    """Where in a user's files, or else in an installed package, something is going on."""
    frames = list(traceback.walk_stack(frame))
    for owner in ("user", "package"):
        for at, line in frames:
            if _owner(at) == owner:
                return f'File "{at.f_code.co_filename}", line {line}, in {at.f_code.co_name}'
    return ""


@contextlib.contextmanager
def users_code(what: str, *, raises: type[ArenaError] = ConfigError) -> Iterator[None]:
    """Turn whatever a user's code raises into one message of Arena's; the rest is for the log.

    Args:
        what: Whose code it is, and what it is doing.
        raises: What is raised in its place.

    Raises:
        ArenaError: An error of Arena's own passes as it is; all else becomes ``raises``.
    """
    try:
        yield
    except ArenaError:
        raise
    except Exception as error:
        logger.info("%s raised", what, exc_info=error)
        raise raises(raised(what, error)) from error


def split_lines(message: str) -> tuple[str, str]:
    """What is one line of a message, and the lines of a traceback after it, if there are any."""
    first, marker, lines = message.partition(BEFORE_LINES)
    return first, f"{marker}{lines}"


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        # A user's exception, too, is a user's code.
        return "(its text cannot be read)"


def _owner(frame: FrameType) -> str:
    """Whose a frame is: a ``user``'s, an installed ``package``'s, or an ``other`` one."""
    module = str(frame.f_globals.get("__name__", ""))
    path = frame.f_code.co_filename
    if module.partition(".")[0] in OWN_PACKAGES or path.startswith("<"):
        return "other"
    path = os.path.abspath(path)
    if _is_below(path, "purelib", "platlib"):
        return "package"
    return "other" if _is_below(path, "stdlib", "platstdlib") else "user"


def _is_below(path: str, *kinds: str) -> bool:
    """Whether a file is where Python keeps what is of these kinds."""
    places = sysconfig.get_paths()
    return path.startswith(tuple(os.path.join(places[kind], "") for kind in kinds))
