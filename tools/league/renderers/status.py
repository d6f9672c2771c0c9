"""State of a run, and what its learners do, as lines of a name and a value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from ...notices import alert_lines, anchor_text, unproven_lines
from ...terminal.quantities import duration
from .look import Document, Look, Row, interval, steps, text_of, title_of, whole

if TYPE_CHECKING:
    from rich.console import RenderableType

    from populations.records.rows import Json

COUNTS = (
    *("agent_steps", "matches", "assignments_finished", "checkpoints", "ghosts", "exploits"),
    "agent_steps_per_s",
)
NESTED = ("alerts", "champion", "learners", "learners_waiting")


def status(document: Document, look: Look) -> Iterator[RenderableType]:
    """Yield the state as lines; alerts first, because they ask for something."""
    from rich.text import Text

    for line in alert_lines(cast("Mapping[str, Json]", document)):
        yield Text(look.cut(line, 4 * look.width))
    yield pairs(_lines(document, look))


def _lines(document: Document, look: Look) -> Iterator[tuple[str, str]]:
    for key, value in document.items():
        if key in ("schema", *NESTED) or value in (None, [], {}):
            continue
        if key == "elapsed_s":
            yield "elapsed", duration(cast("float", value))
        elif key in COUNTS and isinstance(value, int | float):
            yield key, steps(value)
        elif key == "quarantined":
            yield key, ", ".join(map(look.name, cast("Sequence[str]", value)))
        elif isinstance(value, Mapping):
            yield key, _listed(value)
        else:
            yield key, text_of(value)
    for name, best in cast("Mapping[str, Row]", document.get("champion", {})).items():
        between = interval(best)
        # Names of populations only where there are several.
        of = f" of {name}" if len(look.populations) > 1 else ""
        yield (
            f"champion{of}",
            f"{look.name(best['player'])}, rating {whole(best['rating'])}"
            + (f", 95% {between}" if between else ""),
        )
        if score := anchor_text(best.get("anchor")):
            yield "", score
        for line in unproven_lines([best["unproven"]]):
            yield "", line.strip()
    if waiting := document.get("learners_waiting"):
        yield "learners waiting", f"{waiting} for a place to run"
    for row in cast("Sequence[Row]", document.get("learners", ())):
        rest = {key: row[key] for key in row if key != "learner" and row[key] is not None}
        yield f"learner {text_of(row.get('learner'))}", _listed(rest)


def _listed(values: Mapping[str, object]) -> str:
    return ", ".join(f"{title_of(key)} {text_of(value)}" for key, value in values.items())


def pairs(lines: Iterator[tuple[str, str]]) -> RenderableType:
    """Return lines of a name and a value, as a table without a head."""
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    drawn.add_column(no_wrap=True, max_width=24, overflow="ellipsis")
    drawn.add_column(overflow="fold")
    for key, value in lines:
        drawn.add_row(Text(title_of(key)), Text(value))
    return drawn
