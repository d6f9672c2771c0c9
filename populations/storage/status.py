"""``status.json``: live figures of a running controller, and the counts that it has committed.

Not durable, and no decision depends on it. It is written after the commits that it counts, so a
journal that has less has lost them (`populations.storage.loss`).
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

# Anything may stand in a damaged file, and numbers of assignments never fall again.
_MAX_BELIEVABLE = 2**53


def committed(tables: Tables) -> dict[str, int]:
    """Return the counts of committed work that the file has; they never fall."""
    return {
        "agent_steps": tables.run.agent_steps,
        "matches": tables.run.matches,
        "assignments_finished": tables.run.assignments_finished,
        "events": tables.num_events,
    }


def believable(value: object) -> int:
    """Return a count of a file that may be damaged; 0 if it cannot be one."""
    return value if isinstance(value, int) and 0 <= value < _MAX_BELIEVABLE else 0


def write_status(run_dir: Path, document: Mapping[str, Json]) -> None:
    """Replace the file; readers see the old one or the new one.

    Raises:
        StorageError: If the disk refuses.
        ValueError: If a number is not finite.
    """
    # NaN is no JSON, and other programs read the file.
    text = json.dumps(document, allow_nan=False)
    with storage_errors(run_dir / STATUS):
        failpoint("status.begin")
        # No fsync is needed, as the file is outdated after a crash anyway.
        with replacing(run_dir / STATUS) as file:
            file.write(text.encode())
            failpoint("status.written")
        failpoint("status.replaced")


def read_status(run_dir: Path) -> dict[str, Json] | None:
    """Return the last figures, or None if there are none that can be read."""
    try:
        return cast("dict[str, Json]", read_json_object(run_dir / STATUS))
    except (OSError, ValueError):
        return None
