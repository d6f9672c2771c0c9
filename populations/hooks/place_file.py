"""The place that hooks have reached among the events of a run, on disk."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from arena.files import read_json_object, write_own
from populations.hooks.calls import Place
from populations.storage.database import storage_errors


def read_place(path: Path) -> Place | None:
    """Return the place; None if there is none that can be read."""
    try:
        document: dict[str, Any] = read_json_object(path)
        return Place(
            after=int(document["after"]),
            done=tuple(map(str, document["done"])),
            dropped=int(document["dropped"]),
        )
    except (OSError, ValueError, TypeError, KeyError):
        return None


def begin_place(path: Path, *, after: int) -> None:
    """Begin after an event, unless it is known which calls were made.

    Raises:
        StorageError: If the disk refuses.
    """
    if read_place(path) is None:
        with storage_errors(path):
            write_place(path, Place(after=after))


def write_place(path: Path, place: Place) -> None:
    """Replace the file; a kill leaves the old one or the new one.

    Raises:
        OSError: If the disk refuses.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    document = {"after": place.after, "done": list(place.done), "dropped": place.dropped}
    write_own(temporary, json.dumps(document))
    # No fsync: after a power failure some calls are made once more.
    os.replace(temporary, path)
