"""Metrics that a run has written to `metrics.jsonl`.

Tests: `tests/populations/views/test_metrics.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from arena.files import json_object, read_lines
from arena.metrics.jsonl import SEAL, files_of, is_sealed
from arena.metrics.sink import METRICS_FILE
from populations.views.questions.inspection import Document, Inspection

KEYS = ("policy", "agent_steps")
"""Keys of a line that are no metrics."""

LEFT_OUT = "left_out"
"""Key of the number of lines that cannot be read; absent where there are none."""


def metrics_view(
    run: Inspection, population: str | None, *, names: Sequence[str] | None = None
) -> Document:
    """Return the lines of `metrics.jsonl`, oldest first; none where no sink ``jsonl`` was named.

    Lines that are none of the sink's are left out and counted.

    Args:
        run: Run to read.
        population: Population of the policies; the run as a whole is left out. None: all.
        names: Metrics that are asked for; lines without any of them are left out. None: all.
    """
    lines: list[Document] = []
    num_bad = 0
    for line in _read_lines(run.run_dir / METRICS_FILE):
        if line is None:
            num_bad += 1
            continue
        if population not in (None, str(line["policy"]).split("/")[0]):
            continue
        if names is not None:
            line = {key: line[key] for key in (*KEYS, *names) if key in line}
        if len(line) > len(KEYS):
            lines.append(line)
    return {
        "names": None if names is None else list(names),
        "metrics": lines,
        **({LEFT_OUT: num_bad} if num_bad else {}),
    }


def _read_lines(path: Path) -> Iterator[Document | None]:
    """Yield the lines of a file and of those that were set aside before it; None: a damaged one."""
    for part in files_of(path):
        try:
            for text in read_lines(part):
                # The last line of a run that goes on, or was killed, may be torn.
                if text is None or text.endswith(b"\n"):
                    yield None if text is None else _line_of(text)
        except FileNotFoundError:
            # No such sink, or the file was set aside just now.
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
