"""Metrics that a run has written to `metrics.jsonl`.

Tests: `tests/populations/views/test_metrics.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from arena.files import json_object, read_lines
from arena.metrics.jsonl import SEAL, files_of, is_sealed
from arena.metrics.sink import METRICS_FILE
from populations.views.questions.inspection import Document

KEYS = ("policy", "agent_steps")
"""Keys of a line that are no metrics."""

LEFT_OUT = "left_out"
"""Key of the number of lines that cannot be read; absent where there are none."""


def metric_lines(run_dir: Path) -> Iterator[Document | None]:
    """Yield the lines of a run, oldest first; None: a damaged one."""
    for part in files_of(run_dir / METRICS_FILE):
        try:
            for text in read_lines(part):
                # The last line of a run that goes on, or was killed, may be torn.
                if text is None or text.endswith(b"\n"):
                    yield None if text is None else _line_of(text)
        except FileNotFoundError:
            # There is no such sink, or the file was set aside just now.
            continue
        except OSError:
            # What is in the place of a file counts as a line of it.
            yield None


def _line_of(text: bytes) -> Document | None:
    if not is_sealed(text):
        return None
    try:
        line = json_object(text)
    except ValueError:
        return None
    line.pop(SEAL, None)
    steps = line.get("agent_steps")
    numbers = (value for key, value in line.items() if key not in KEYS)
    is_whole = isinstance(line.get("policy"), str) and type(steps) is int and steps >= 0
    is_sinks = is_whole and all(map(_is_metric, numbers))
    return line if is_sinks else None


def _is_metric(value: object) -> bool:
    # An infinity is a number beyond all floats: the sink writes none.
    return isinstance(value, int | float) and type(value) is not bool and math.isfinite(value)
