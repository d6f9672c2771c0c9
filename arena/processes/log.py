"""Log of a process: one line for each record, with its time."""

from __future__ import annotations

import io
import logging
import sys
from pathlib import Path

from arena.processes.bounded_log import BoundedLog


def begin_log(level: int = logging.INFO, *, file: Path | None = None) -> None:
    """Let this process log to a file, or to standard error, unless it has a log already.

    Args:
        level: Least level of what is logged.
        file: Bounded file to append to; None: standard error.
    """
    logging.basicConfig(
        stream=(
            sys.stderr
            if file is None
            else io.TextIOWrapper(
                # Text that cannot be encoded must not lose a line.
                io.BufferedWriter(BoundedLog(file)),
                encoding="utf8",
                errors="backslashreplace",
            )
        ),
        level=level,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
