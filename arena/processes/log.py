"""Log of a process: one line for each record, with its time."""

from __future__ import annotations

import logging
from pathlib import Path


def begin_log(level: int = logging.INFO, *, file: Path | None = None) -> None:
    """Let this process log to a file, or to standard error, unless it has a log already.

    Args:
        level: Least level of what is logged.
        file: File to append to; None: standard error.
    """
    logging.basicConfig(
        filename=file, level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
