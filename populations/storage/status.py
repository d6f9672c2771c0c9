"""``status.json``: live numbers of a running controller, and counts of its committed work.

The file is not durable, and no decision depends on it. It is written after the commits that it
counts, so a journal with lower counts has lost commits (`populations.storage.loss`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from arena.failpoints import failpoint
from arena.files import read_json_object, replacing
from populations.records.rows import Json
from populations.records.tables import Tables
from populations.storage.database import storage_errors

STATUS = "status.json"

# A damaged file may have any number, and a repair continues the numbers of assignments from it.
_MAX_BELIEVABLE = 2**53


def committed(tables: Tables) -> dict[str, int]:
    """Return the counts of committed work that the file has; they never decrease."""
    return {
        "agent_steps": tables.run.agent_steps,
        "matches": tables.run.matches,
        "assignments_finished": tables.run.assignments_finished,
        "events": tables.num_events,
    }


def believable(value: object) -> int:
    """Return a count from a file that may be damaged; 0 if the value cannot be a count."""
    return value if isinstance(value, int) and 0 <= value < _MAX_BELIEVABLE else 0


def write_status(run_dir: Path, document: Mapping[str, Json]) -> None:
    """Replace the file atomically: readers see the old document or the new one.

    Raises:
        StorageError: If the disk refuses.
        ValueError: If a number is not finite.
    """
    # Other programs read the file, and NaN is not valid JSON.
    text = json.dumps(document, allow_nan=False)
    with storage_errors(run_dir / STATUS):
        failpoint("status.begin")
        # No fsync is needed, as the file is outdated after a crash anyway.
        with replacing(run_dir / STATUS) as file:
            file.write(text.encode())
            failpoint("status.written")
        failpoint("status.replaced")


def read_status(run_dir: Path) -> dict[str, Json] | None:
    """Return the last document; None if there is no file or it cannot be read."""
    try:
        return cast("dict[str, Json]", read_json_object(run_dir / STATUS))
    except (OSError, ValueError):
        return None
