"""Settings of the whole process, which users' code may change, kept apart from Arena's own work.

Torch's default dtype, the mode of gradients, the recursion limit and, in commands, the working
directory are changed back whenever an import, an environment, a bot, an outcome or a sink of users
returns, and given to it again when it is called next, so that each side has its own (`SETTINGS`).
An encoder is part of Arena's own computation: it is made with Arena's settings, which are changed
back afterwards. What else users' code changes, and what encoders and algorithms change while they
compute, is changed back by `KeptSettings.restore`, between the parts of a learner's work alone.
What was changed is named in the log, once.

Not kept: a learner's working directory (its paths are absolute), environment variables, arguments
of the process, generators of random numbers (Arena's draws have generators of their own), limits
that only the superuser may raise again, and descriptors that are not the first three.

Imports nothing heavy: torch and numpy are looked at where they are loaded.

Tests: `tests/arena/processes/test_settings.py`.
"""

from __future__ import annotations

import contextlib
import contextvars
import gc
import locale
import logging
import os
import resource
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple, ParamSpec, TypeVar

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
STREAMS = (0, 1, 2)
"""Descriptors of standard input, output and error."""


class UsersSettings(threading.local):
    """Settings that users' code runs with, where they are not those of Arena. One per thread."""

    def __init__(self) -> None:
        self._is_running = False
        self._context: contextvars.Context | None = None
        self._theirs: dict[int, Any] = {}

    def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call users' code with its own settings, and change them back afterwards."""
        # Users' code may call Arena's, which calls users' code again; all of it has users'
        # settings.
        if self._is_running:
            return call(*args, **kwargs)
        context = self._context
        if context is None:
            global _has_run
            _has_run = True
            # numpy's error handling and decimal's context live in this context.
            context = self._context = contextvars.copy_context()
        ours = begun = _read()
        if self._theirs:
            for index, value in self._theirs.items():
                _write(index, value)
            begun = _read()
        self._is_running = True
        try:
            return context.run(call, *args, **kwargs)
        finally:
            self._is_running = False
            ended = _read()
            # Equality is the usual case and the cheapest test.
            if not ended == begun == ours:
                self._leave(ours, begun, ended)

    def run_with_ours(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call users' code that computes for Arena with Arena's settings; change them back."""
        ours = _read()
        try:
            return call(*args, **kwargs)
        finally:
            for index, (own, now) in enumerate(zip(ours, _read(), strict=False)):
                if now != own:
                    _note(NAMES[index])
                    _write(index, own)

    def _leave(self, ours: tuple[Any, ...], begun: tuple[Any, ...], ended: tuple[Any, ...]) -> None:
        # If torch was loaded meanwhile, perhaps by users' code, it had its defaults before.
        fresh = () if len(ours) == len(ended) else (sys.modules["torch"].float32, True)
        settings = zip((*ours, *fresh), (*begun, *fresh), ended, strict=True)
        for index, (own, before, now) in enumerate(settings):
            if now != before:
                self._theirs[index] = now
                _note(NAMES[index])
            if now != own:
                _write(index, own)


NAMES = (
    "the recursion limit",
    "the working directory",
    "torch's default dtype",
    "torch's mode of gradients",
)
"""Settings that each side has its own of."""

_keeps_directory = False


def keep_directory() -> None:
    """Keep the working directory for Arena's own work, too.

    For commands, whose arguments are paths as the user gives them. A learner's are absolute, and
    it need not look after each step.
    """
    global _keeps_directory
    _keeps_directory = True


def _read() -> tuple[Any, ...]:
    """Return the settings that each side has its own of, in the order of `NAMES`."""
    # This is called twice per step of a batch, so it only makes reads of 50 ns each.
    torch = loaded("torch")
    directory = _directory() if _keeps_directory else None
    if torch is None:
        return sys.getrecursionlimit(), directory
    return sys.getrecursionlimit(), directory, torch.get_default_dtype(), torch.is_grad_enabled()


def loaded(name: str) -> ModuleType | None:
    """Return an imported module; None if it is not imported, or still being imported."""
    module = sys.modules.get(name)
    return None if getattr(getattr(module, "__spec__", None), "_initializing", False) else module


def _directory() -> str | None:
    """Return the working directory; None: it has been removed."""
    try:
        return os.getcwd()
    except OSError:
        return None


def _write(index: int, value: Any) -> None:  # noqa: ANN401
    if index == 0:
        # Python refuses a limit that is too low for the current stack.
        with contextlib.suppress(RecursionError):
            sys.setrecursionlimit(value)
        return
    if index == 1:
        # The directory may have been removed.
        if value is not None:
            with contextlib.suppress(OSError):
                os.chdir(value)
        return
    torch = sys.modules["torch"]
    (torch.set_default_dtype, torch.set_grad_enabled)[index - 2](value)


SETTINGS = UsersSettings()
"""Settings of users' code in this process."""

_has_run = False


def has_run() -> bool:
    """Return whether users' code, or an environment's, has run: it may have left threads."""
    return _has_run


class _Setting(NamedTuple):
    """A setting that is changed back from time to time."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object]


class KeptSettings:
    """Settings of this process as they are now, for Arena's own work.

    Owned by one thread.
    """

    def __init__(self) -> None:
        self._settings = tuple(_settings())
        self._values = [setting.read() for setting in self._settings]
        self._modules = dict(sys.modules)
        self._streams = {stream: kept for stream in STREAMS if (kept := _kept(stream)) is not None}

    def restore(self) -> None:
        """Change back what users' code has changed, and name it in the log."""
        for name in self._modules.keys() - sys.modules.keys():
            _note("sys.modules")
            sys.modules[name] = self._modules[name]
        for setting, value in zip(self._settings, self._values, strict=True):
            if setting.read() != value:
                _note(setting.name)
                setting.write(value)
        for stream, (kept, identity) in self._streams.items():
            if _identity(stream) != identity:
                _note(f"descriptor {stream}")
                with contextlib.suppress(OSError):
                    os.dup2(kept, stream)
        _reopen_stream("stdout", 1)
        _reopen_stream("stderr", 2)

    def close(self) -> None:
        """Release what is held to change settings back."""
        for kept, _ in self._streams.values():
            with contextlib.suppress(OSError):
                os.close(kept)
        self._streams = {}


_noted: set[str] = set()


def _note(name: str) -> None:
    """Name a changed setting in the log, once."""
    if name not in _noted:
        _noted.add(name)
        logger.warning("users' code has changed %s: Arena's own work goes on without it", name)


def _settings() -> Iterator[_Setting]:
    """Yield the settings that are changed back from time to time."""
    torch = loaded("torch")
    if torch is not None:
        yield from _torch_settings(torch)
    numpy = loaded("numpy")
    if numpy is not None:
        yield _Setting("numpy.seterr", numpy.geterr, lambda value: numpy.seterr(**value))
    yield _Setting("gc.disable", gc.isenabled, lambda value: gc.enable() if value else gc.disable())
    yield _Setting(
        "locale.setlocale",
        lambda: locale.setlocale(locale.LC_ALL),
        lambda value: locale.setlocale(locale.LC_ALL, value),
    )
    yield _Setting("os.umask", _umask, os.umask)
    yield _Setting("warnings.simplefilter", _raising_filters, _keep_raising_filters)
    yield _Setting(
        "signal.pthread_sigmask",
        lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ()) & set(SIGNALS),
        lambda value: signal.pthread_sigmask(signal.SIG_UNBLOCK, set(SIGNALS) - value),
    )
    yield _Setting("the soft limit of resource.setrlimit", _soft_limit, _set_soft_limit)
    # Python sets handlers only in the main thread, and so does users' code.
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            yield _handler(number)


def _handler(number: signal.Signals) -> _Setting:
    return _Setting(
        f"the handler of {number.name}",
        lambda: signal.getsignal(number),
        # A handler of None was not set from Python, and cannot be set again.
        lambda value: None if value is None else signal.signal(number, value),
    )


def _torch_settings(torch: ModuleType) -> Iterator[_Setting]:
    yield _Setting(
        "torch.set_default_device",
        torch.get_default_device,
        # The CPU is set as None, because an explicit default device slows each call of torch.
        lambda device: torch.set_default_device(None if device.type == "cpu" else device),
    )
    yield _Setting("torch.set_default_dtype", torch.get_default_dtype, torch.set_default_dtype)
    yield _Setting("torch.set_grad_enabled", torch.is_grad_enabled, torch.set_grad_enabled)
    yield _Setting("torch.set_num_threads", torch.get_num_threads, torch.set_num_threads)
    yield _Setting(
        "torch.use_deterministic_algorithms",
        lambda: (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        lambda value: torch.use_deterministic_algorithms(value[0], warn_only=value[1]),
    )
    yield _Setting("torch.set_anomaly_enabled", torch.is_anomaly_enabled, torch.set_anomaly_enabled)
    yield _Setting(
        "torch.set_float32_matmul_precision",
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    )


def _umask() -> int:
    # Setting the umask is the only way to read it.
    value = os.umask(0o077)
    os.umask(value)
    return value


def _soft_limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _set_soft_limit(value: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    # A hard limit that was lowered stays, because only root may raise it.
    soft = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _raising_filters() -> list[Any]:
    """Return the filters that turn warnings into errors; all others are left to users' code."""
    return [one for one in warnings.filters if one[0] == "error"]


def _keep_raising_filters(value: list[Any]) -> None:
    """Take out all other filters that raise."""
    kept = [one for one in warnings.filters if one[0] != "error" or one in value]
    warnings.filters[:] = kept  # type: ignore[index]
    # Leaving the context invalidates Python's cache of filters.
    with warnings.catch_warnings():
        pass


def _identity(stream: int) -> tuple[int, int] | None:
    """Return the file that a descriptor is open for; None: it is closed."""
    try:
        found = os.fstat(stream)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _kept(stream: int) -> tuple[int, tuple[int, int]] | None:
    """Return a copy of a descriptor and the identity of its file; None: it is closed."""
    identity = _identity(stream)
    return None if identity is None else (os.dup(stream), identity)


def _reopen_stream(name: str, descriptor: int) -> None:
    """Replace a stream of Python that users' code has closed."""
    stream = getattr(sys, name)
    if stream is not None and stream.closed:
        _note(f"sys.{name}")
        opened = open(descriptor, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
        setattr(sys, name, opened)
