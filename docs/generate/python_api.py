"""The pages of the Python API: what `arena` and `arena.testing` offer when they are built."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from types import ModuleType

PROTOCOLS = (
    "populations.core",
    "arena.core",
    "arena.envs.base",
    "arena.envs.batched.game",
    "arena.metrics.sink",
    "arena.types",
    "arena.environment_spec",
    "arena.errors",
    "populations.errors",
)
"""Modules whose Protocols, values and exceptions are public, as the docstring of `arena` says."""


def page() -> str:
    """Return the entries of every public name."""
    parts = []
    for module in ("arena", "arena.testing"):
        if names := public_names(module):
            entries = "\n".join(_entry(module, name) for name in names)
            parts.append(f"## `{module}`\n\n{entries}")
    parts += [f"## `{module}`\n\n{_automodule(module)}" for module in PROTOCOLS]
    return "\n".join(parts)


def public_names(module: str) -> list[str]:
    """Return the names in a module's ``__all__``; none if there is no such module or list."""
    if importlib.util.find_spec(module) is None:
        return []
    return list(getattr(importlib.import_module(module), "__all__", ()))


def _entry(module: str, name: str) -> str:
    found = getattr(importlib.import_module(module), name)
    if isinstance(found, ModuleType):
        return _automodule(found.__name__)
    if inspect.isclass(found):
        kind = "autoexception" if issubclass(found, BaseException) else "autoclass"
        # A name that another section documents too is indexed in that section only.
        options = ["members", *(["no-index"] if found.__module__ in PROTOCOLS else [])]
        return _directive(f"{kind}:: {module}.{name}", *options)
    kind = "autofunction" if callable(found) else "autodata"
    return _directive(f"{kind}:: {module}.{name}")


def _automodule(name: str) -> str:
    return _directive(f"automodule:: {name}", "members")


def _directive(name: str, *options: str) -> str:
    lines = "".join(f"   :{option}:\n" for option in options)
    return f"```{{eval-rst}}\n.. {name}\n{lines}```\n"
