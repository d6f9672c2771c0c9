"""Page of metrics, divided by their groups.

Tests: `tests/tools/web/test_pages.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from populations.views.charts import curves
from populations.views.parts import Row

from ...show.html import Block, short
from .asked import Asked

FIRST = "training"
"""Title of the first part of metrics: what tells how training goes."""

NONE = (
    "There are no metrics: they are read from metrics.jsonl, which is written where metrics.sinks "
    "names jsonl."
)


def groups_of(lines: Sequence[Row]) -> dict[str, list[str]]:
    """Return the names of metrics by their groups, sorted; before them what is telling."""
    found = {name for line in lines for name in line} - {"policy", "agent_steps"}
    telling = [name for name in curves.DEFAULT_METRICS if name in found]
    groups = {FIRST: telling} if telling else {}
    for group, names in itertools.groupby(sorted(found), key=lambda name: name.split("/")[0]):
        groups.setdefault(f"{group}/", []).extend(names)
    return groups


def parts_of_metrics(asked: Asked) -> dict[str, int]:
    """Return the numbers of the parts by their titles."""
    groups = groups_of(asked.rows("metrics", "metrics"))
    return {short(title): number for number, title in enumerate(groups, 1)}


def metrics(asked: Asked) -> Iterator[Block]:
    """Yield the charts of a group of metrics; each policy's last and extreme figures below."""
    lines = asked.rows("metrics", "metrics")
    if num_bad := asked.documents["metrics"].get("left_out"):
        note = f"Lines of metrics.jsonl that cannot be read: {num_bad}."
        yield Block(heading="Left out", about=note)
    groups = groups_of(lines)
    if not groups:
        yield Block(heading="Metrics", about=NONE)
        return
    names = [*groups.values()][min(asked.medium.number, len(groups)) - 1]
    # The number is that of the group: its tables have one part.
    asked = replace(asked, medium=replace(asked.medium, number=1))
    chosen = {**asked.documents["metrics"], "names": names}
    yield from asked.part("Metrics", lambda: asked.charts("metrics", metrics=chosen), csv="metrics")
