"""Docstrings of commands as text."""

from __future__ import annotations

import inspect
from collections.abc import Callable


def paragraphs(command: Callable[..., None]) -> str:
    """Return a command's docstring with each paragraph on one line, for a terminal to wrap."""
    text = inspect.cleandoc(command.__doc__ or "")
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))
