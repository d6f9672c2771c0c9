"""The section ``hooks``: functions and commands that are called after events of a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import BeforeValidator, field_validator

from arena.config import Model
from populations.fields import IMPORT_PATH, Count, Seconds

Command = tuple[str, ...]
"""Command and its arguments, as passed to a process."""

Hook = str | Command
"""Hook of a configuration: ``package.module:function``, or a command."""

HOOKS = ("on_ghost", "on_champion", "on_exploit", "on_evaluation", "on_end", "on_event")

_RULE = "a hook must be package.module:function or a list [command, argument, ...]"


def _hook(hook: object) -> object:
    """Check a hook's form, and convert numbers among a command's arguments to text."""
    if isinstance(hook, str):
        if not IMPORT_PATH.fullmatch(hook):
            raise ValueError(_RULE)
        return hook
    if not isinstance(hook, list | tuple) or not hook:
        raise ValueError(_RULE)
    parts = [
        str(part) if isinstance(part, int | float) and not isinstance(part, bool) else part
        for part in hook
    ]
    if not parts[0] or not all(isinstance(part, str) and "\0" not in part for part in parts):
        raise ValueError(f"{_RULE}, each part text or a number")
    return tuple(parts)


Hooks = tuple[Annotated[Hook, BeforeValidator(_hook)], ...]


class HooksConfig(Model):
    """Functions and commands that are called after events, in a process of their own."""

    on_ghost: Hooks = ()
    """Hooks for each new ghost."""

    on_champion: Hooks = ()
    """Hooks for each new champion of a population."""

    on_exploit: Hooks = ()
    """Hooks for each copy of a donor's weights."""

    on_evaluation: Hooks = ()
    """Hooks for each fit of ratings to new evaluation matches."""

    on_end: Hooks = ()
    """Hooks for the end of the run, whether it finished, failed or was stopped."""

    on_event: Hooks = ()
    """Hooks for every event."""

    time_limit_s: Seconds = 60.0
    """Time for one call, after which its process is killed."""

    queue: Count = 1000
    """Most calls that wait; the oldest ones are dropped beyond that."""

    @field_validator(*HOOKS)
    @classmethod
    def _each_once(cls, hooks: Hooks) -> Hooks:
        if len(set(hooks)) < len(hooks):
            raise ValueError("each hook must be named once")
        return hooks

    @property
    def by_kind(self) -> dict[str, Hooks]:
        """Return the hooks by kind, for kinds with at least one hook."""
        found: Iterator[tuple[str, Hooks]] = ((kind, getattr(self, kind)) for kind in HOOKS)
        return {kind: hooks for kind, hooks in found if hooks}
