"""Which points of curves an earlier controller wrote: a resume repeats none and leaves none out.

Points are written after the commit of what they describe, so a kill may fall in between. Read from
``metrics.jsonl``; nothing else is decided by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from arena.metrics.jsonl import files_of, point_of
from arena.metrics.sink import RUN
from arena.wire.messages import Train
from populations.controller.monitoring.curves import evaluated_steps
from populations.controller.state.measured import Curves
from populations.league.league import League
from populations.records.rows import AssignmentRow

MAX_ASSIGNMENTS = 1000
"""Most assignments whose points can be missing: those of one transaction."""


Written = tuple[dict[str, int], dict[str, tuple[int, Mapping[str, float]]], int | None]
"""Last points of each curve: agent steps of each policy's last training point, agent steps and
figures of its last standing, and agent steps of the run's last point; None: it has none."""


def read_written(path: Path) -> Written | None:
    """Read the last points; None where nothing was ever written.

    Raises:
        OSError: If the disk refuses.
    """
    # A file may have been begun a moment ago.
    files = [file for file in files_of(path)[-2:] if file.exists()]
    if not files:
        return None
    trained: dict[str, int] = {}
    rated: dict[str, tuple[int, Mapping[str, float]]] = {}
    run_steps = None
    for file in files:
        with open(file, "rb") as lines:
            for line in lines:
                point = point_of(line)
                if point is None:
                    continue
                policy, steps = point["policy"], point["agent_steps"]
                if policy == RUN:
                    run_steps = steps
                elif "pbt/generation_count" in point:
                    trained[policy] = steps
                else:
                    rated[policy] = (steps, point)
    return trained, rated, run_steps


def go_on(league: League, curves: Curves, written: Written, rows: Iterable[AssignmentRow]) -> None:
    """Let the curves of a resumed run go on behind the points that were written.

    Args:
        league: Players and results.
        curves: Points of curves.
        written: Points that were written.
        rows: Last finished training assignments, by id.
    """
    policies = league.tables.policies
    trained, rated, curves.run_shown_at = written
    for row in policies.values():
        digest = league.standing_weights(row)
        if digest is None or row.policy not in rated:
            continue
        steps, figures = rated[row.policy]
        if steps == evaluated_steps(league, row, digest):
            matches = int(figures["evaluation/matches_count"])
            ratings = {name: one for name, one in figures.items() if name.startswith("rating/")}
            curves.written[row.policy] = (digest, matches, ratings)
            curves.rated_at[row.policy] = steps
    last = {
        trainee.policy: row
        for row in rows
        if isinstance(row.message, Train)
        for trainee in row.message.trainees
    }
    missing = {
        row.assignment_id: row
        for policy, row in last.items()
        if trained.get(policy, -1) < policies[policy].agent_steps
    }
    curves.unwritten = list(missing.values())
    curves.is_resumed = True
