"""Metrics that a run has written to `metrics.jsonl`.

Tests: `tests/populations/views/test_metrics.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from arena.files import read_lines
from arena.metrics.jsonl import files_of, point_of
from arena.metrics.sink import METRICS_FILE
from populations.views.questions.inspection import Document

LEFT_OUT = "left_out"
"""Key of the number of lines that cannot be read; absent where there are none."""


def metric_lines(run_dir: Path) -> Iterator[Document | None]:
    """Yield the lines of a run, oldest first; None: a damaged one."""
    for part in files_of(run_dir / METRICS_FILE):
        try:
            for text in read_lines(part):
                # The last line of a run that goes on, or was killed, may be torn.
                if text is None or text.endswith(b"\n"):
                    yield None if text is None else point_of(text)
        except FileNotFoundError:
            # There is no such sink, or the file was set aside just now.
            continue
        except OSError:
            # What is in the place of a file counts as a line of it.
            yield None
