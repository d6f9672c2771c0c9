"""Settings as others may read them: without what looks like a secret.

Tests: `tests/populations/config/resume/test_secrets.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from populations.records.rows import Json

HIDDEN = "(not shown)"

_SECRET = re.compile(
    r"token|secret|passw|credential|authoriz|(api|access|private)_?key", re.IGNORECASE
)
_LOGIN = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def without_secrets(value: Json, key: str = "") -> Json:
    """Return a setting without the arguments of hooks' commands, secrets by name, and logins.

    Args:
        value: Plain data.
        key: Dotted key.
    """
    if isinstance(value, Mapping):
        return {
            name: without_secrets(one, f"{key}.{name}" if key else name)
            for name, one in value.items()
        }
    if isinstance(value, Sequence) and not isinstance(value, str):
        if key.startswith("hooks."):
            return [_program(hook) for hook in value]
        return [without_secrets(one, key) for one in value]
    if isinstance(value, str):
        return HIDDEN if _SECRET.search(key.rpartition(".")[2]) else _LOGIN.sub(HIDDEN, value)
    return value


def _program(hook: Json) -> Json:
    """Return a hook; of a command its program alone."""
    match hook:
        case [program, _, *_]:
            return [program, HIDDEN]
    return hook
