"""The boundary around users' code, and messages about what it raises.

Environments, bots, rules, networks and the like may raise anything, including `SystemExit` and
`KeyboardInterrupt`; any exception counts as an error of that code, at the place of the call. Only
an interrupt of this process passes: each ``except BaseException`` around users' code is followed by
`pass_interrupt`.

A message is a line that names the error, then the user's own frames: users' code is called from
deep inside Arena, so most of a traceback is Arena's. Torch-free.

Tests: `tests/arena/test_users_code.py`.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import signal
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TypeVar

from arena.errors import ArenaError, ConfigError, DiskRefused, MachineExhausted
from arena.processes.settings import loaded
from arena.types import PolicyId

logger = logging.getLogger(__name__)

T = TypeVar("T")

BEFORE_LINES = "\n  File "
"""Beginning of the lines of a traceback in a message; the text before is one line."""

ARENA_PACKAGES = frozenset({"arena", "populations"})
MAX_FRAMES = 8
"""Most frames of a traceback that are shown, the innermost: a recursion has a thousand."""

DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Error numbers of a machine that ran out of something."""

CPU_ALLOCATOR = "DefaultCPUAllocator"
"""Part of torch's message where the CPU's memory is used up."""

MAX_MESSAGE = 1000
"""Length at which the text of an error is cut off."""


class Interrupt(BaseException):
    """Base of exceptions of Arena's own signal handlers, which are no errors of users' code."""


class NetworkRaised(Exception):
    """Error: a player's network or algorithm raised; the cause has its exception.

    Attributes:
        policy: Policy that learns; None: the player does not.
        key: Key of the weights of a player that does not learn.
    """

    def __init__(self, *, policy: PolicyId | None = None, key: str | None = None) -> None:
        """Store the player's name."""
        super().__init__(policy or key)
        self.policy = policy
        self.key = key


def pass_interrupt(error: BaseException) -> None:
    """Raise an exception again if it interrupts this process instead of being users' error.

    It does if a handler of Arena's raised it, or if it can be Python's own Ctrl-C.
    """
    # Python's own handler runs only in the main thread. Where Arena handles Ctrl-C, or the signal
    # is ignored, a KeyboardInterrupt was raised by users' code.
    can_be_ctrl_c = (
        isinstance(error, KeyboardInterrupt)
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if can_be_ctrl_c or isinstance(error, Interrupt):
        raise error


def is_exhaustion(error: BaseException) -> bool:
    """Return whether this machine ran out of memory (of a device, too), descriptors or disk space.

    The causes of the error count as well. A disk that refuses a checkpoint does not count: that is
    the run's fault (`DiskRefused`), unless descriptors or memory have run out.
    """
    # torch's error is no MemoryError, and on the CPU it has no class of its own.
    torch = loaded("torch")
    kinds = (MemoryError, MachineExhausted, *(() if torch is None else (torch.OutOfMemoryError,)))
    has_disk = False
    for one in chain_of(error):
        has_disk = has_disk or isinstance(one, DiskRefused)
        codes = DESCRIPTORS if has_disk else DESCRIPTORS | SPACE
        if isinstance(one, kinds) or (isinstance(one, OSError) and one.errno in codes):
            return True
        if isinstance(one, RuntimeError) and CPU_ALLOCATOR in _text(one):
            return True
    return False


def chain_of(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes, as a traceback shows them, each once."""
    # ``raise error from error`` makes a cycle.
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        shows_context = error.__cause__ is None and not error.__suppress_context__
        error = error.__context__ if shows_context else error.__cause__


def is_of_users(error: BaseException) -> bool:
    """Return whether an exception came out of a user's own files."""
    return any(_owner(frame) == "user" for frame, _ in traceback.walk_tb(error.__traceback__))


def raised(what: str, error: BaseException) -> str:
    """Return one message: the code and its error, then the user's own lines of the traceback.

    Args:
        what: Name of the code and its task ("the matchmaker's ``draw``").
        error: Error that it raised.
    """
    return f"{what} raised {named(error)}{own_lines(error)}"


def message_of(error: BaseException, *, what: str = "") -> str:
    """Return the message of an error: Arena's own have one, others are named as `raised` does.

    Args:
        error: Error.
        what: Name of the code and its task. Empty: the message begins with the error's class.
    """
    if isinstance(error, ArenaError):
        return _text(error)
    return raised(what, error) if what else f"{named(error)}{own_lines(error)}"


def named(error: BaseException) -> str:
    """Return the class of an exception and its text, on one line."""
    # The text is on one line, because the lines after it belong to the traceback (`split_lines`).
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
        # Source lines are read from the files; position marks would only add lines.
        summary = traceback.FrameSummary(frame.f_code.co_filename, line, frame.f_code.co_name)
        frames[_owner(frame)].append(summary)
    # A file with a syntax error has no frame of its own.
    if isinstance(error, SyntaxError) and error.filename:
        broken = traceback.FrameSummary(
            error.filename, error.lineno or 1, "<module>", line=error.text
        )
        frames["user"].append(broken)
    # The innermost frames are at the end, nearest to the error.
    shown = (frames["user"] or frames["package"])[-MAX_FRAMES:]
    return "".join(f"\n{entry.rstrip()}" for entry in traceback.format_list(shown))


def place_of(frame: FrameType | None) -> str:
    """Return the place of execution in a user's files, else in an installed package, else ""."""
    # walk_stack begins with the innermost frame, so the first of a kind is the place of execution.
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
    # The error has its message already, perhaps from a nested `users_code`.
    except ArenaError:
        raise
    except BaseException as error:
        pass_interrupt(error)
        # The level is info, because the user gets the message anyway, and the traceback is for
        # debugging.
        logger.info("%s raised", what, exc_info=error)
        raise raises(raised(what, error)) from error


def guarded(rule: Callable[[], T], instead: Callable[[str], T], *, what: str) -> T:
    """Return the result of a user's rule; if it raises, the result of ``instead``.

    The full traceback goes to the log.

    Args:
        rule: Call of the rule, and of what checks its answer.
        instead: Function of the error message, which ends with the user's own lines.
        what: Purpose of the call, for the message.
    """
    try:
        return rule()
    except BaseException as error:
        pass_interrupt(error)
        logger.exception("%s failed", what)
        return instead(f"{named(error)}{own_lines(error)}")


@contextlib.contextmanager
def naming_network(*, policy: PolicyId | None = None, key: str | None = None) -> Iterator[None]:
    """Add the policy or the key of its weights to an error of a player's network or algorithm.

    Raises:
        NetworkRaised: Unless it is an error of Arena's own, or the player has no name.
    """
    try:
        yield
    except ArenaError:
        raise
    except BaseException as error:
        pass_interrupt(error)
        if policy is None and key is None:
            raise
        raise NetworkRaised(policy=policy, key=key) from error


def encodable(text: str) -> str:
    """Return a text with lone surrogates replaced, which UTF-8 and msgpack cannot encode."""
    return text.encode("utf8", errors="replace").decode()


def split_lines(message: str) -> tuple[str, str]:
    """Split a message into its first line and the lines of a traceback after it, if any."""
    first, marker, lines = message.partition(BEFORE_LINES)
    return first, f"{marker}{lines}"


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as worse:
        pass_interrupt(worse)
        # The text of a user's exception is computed by users' code, which may raise.
        return "(its text cannot be read)"


def _owner(frame: FrameType) -> str:
    """Return the owner of a frame: ``user``, an installed ``package``, or ``other``."""
    return owner_of(str(frame.f_globals.get("__name__", "")), frame.f_code.co_filename)


def is_arenas(made: object) -> bool:
    """Return whether the class of an object is Arena's own."""
    return _is_arenas(type(made).__module__)


def _is_arenas(module: str) -> bool:
    return module.partition(".")[0] in ARENA_PACKAGES


def owner_of(module: str, path: str) -> str:
    """Return the owner of a module's file: ``user``, an installed ``package``, or ``other``."""
    # Frames such as <frozen importlib._bootstrap> and <string> have no file to show.
    if _is_arenas(module) or path.startswith("<"):
        return "other"
    # A script that was started by a relative path has that path as its file name.
    path = os.path.abspath(path)
    if _is_below(path, "purelib", "platlib"):
        return "package"
    # The standard library is tested after packages, because site-packages lies below stdlib.
    return "other" if _is_below(path, "stdlib", "platstdlib") else "user"


def _is_below(path: str, *kinds: str) -> bool:
    """Return whether a file is in Python's directories of these kinds."""
    # The places are those of the running interpreter, including a virtual environment's.
    places = sysconfig.get_paths()
    # The places end with a separator, because /lib/python3 is no parent of /lib/python3-local.
    return path.startswith(tuple(os.path.join(places[kind], "") for kind in kinds))
