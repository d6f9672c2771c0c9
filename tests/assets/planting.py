"""Code planted into every field of a document: what a file from elsewhere could name.

Fields are found in the document itself, so one that is added later is tried, too.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

Path = tuple[str | int, ...]


def fields(document: Any, path: Path = ()) -> Iterator[Path]:
    """The path of every field of plain data that could take a text, those with others included."""
    if path and not isinstance(document, bool | int | float):
        yield path
    if isinstance(document, dict):
        for name, value in document.items():
            yield from fields(value, (*path, name))
    elif isinstance(document, list):
        for index, value in enumerate(document):
            yield from fields(value, (*path, index))


def forms(reference: str) -> Iterator[Any]:
    """The forms in which a field may name code."""
    bot = f"bot:{reference}"
    yield from (reference, bot, [reference], [bot], {reference: 0.1}, {bot: 0.1})
    # The reference becomes the command of a hook.
    yield [["touch", reference]]


def replaced(document: Any, path: Path, value: Any) -> Any:
    """A document with another value in one field; the rest of it is shared."""
    if not path:
        return value
    found = copy.copy(document)
    found[path[0]] = replaced(document[path[0]], path[1:], value)
    return found


def dotted(path: Path) -> str:
    """A field's name for people."""
    return ".".join(map(str, path))
