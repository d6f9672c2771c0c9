"""Figures of runs in the text format of Prometheus, or in OpenMetrics.

Tests: `tests/tools/web/test_exposition.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from arena.errors import ArenaError
from populations.views.league import standing_rows
from populations.views.parts import Document, Row

from .runs import Run

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

STATES = ("running", "stopped", "finished", "failed", "crashed")


class Family(NamedTuple):
    """Family of metrics: its name without the suffix of counters."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str


Sample = tuple[Family, Mapping[str, str], float]

COUNTERS = {
    "agent_steps": Family("arena_agent_steps", "counter", "Committed agent steps."),
    "matches": Family("arena_matches", "counter", "Committed matches."),
    "assignments_finished": Family("arena_assignments", "counter", "Finished assignments."),
    "exploits": Family("arena_copies", "counter", "Copies of weights by PBT."),
    "elapsed_s": Family("arena_elapsed_seconds", "counter", "Seconds that the run has taken."),
}
GAUGES = {
    "ghosts": Family("arena_ghosts", "gauge", "Ghosts that are kept."),
    "checkpoints": Family("arena_checkpoints", "gauge", "Checkpoints on disk."),
    "agent_steps_per_s": Family(
        "arena_agent_steps_per_second", "gauge", "Agent steps per second, over the last 30 s."
    ),
}
STATE = Family("arena_run_state", "gauge", "1 for the state that the run is in.")
LEARNERS = Family("arena_learners", "gauge", "Learners that are connected.")
ALERTS = Family("arena_alerts", "gauge", "Alerts that are raised.")
QUARANTINED = Family("arena_quarantined_policies", "gauge", "Policies in quarantine.")
RATING = Family("arena_rating_elo", "gauge", "Rating of a policy; bot:random is at 0.")
RATING_LOW = Family("arena_rating_low_elo", "gauge", "Lower end of the 95% interval.")
RATING_HIGH = Family("arena_rating_high_elo", "gauge", "Upper end of the 95% interval.")
CHAMPION = Family("arena_champion_rating_elo", "gauge", "Rating of a population's champion.")
CYCLICITY = Family(
    "arena_cyclicity_ratio", "gauge", "Share of the results that no rating can express."
)
ORDER = (
    *COUNTERS.values(), *GAUGES.values(), STATE, LEARNERS, ALERTS, QUARANTINED, RATING,
    RATING_LOW, RATING_HIGH, CHAMPION, CYCLICITY,
)  # fmt: skip


def exposition(runs: Sequence[Run], *, openmetrics: bool) -> str:
    """Return the figures of all runs as text.

    Args:
        runs: Runs.
        openmetrics: Whether in OpenMetrics, or in the older format of Prometheus.
    """
    samples: dict[Family, list[str]] = {}
    for run in runs:
        try:
            documents = run.documents(["status", "standings"])
            status, standings = documents["status"], documents["standings"]
        except ArenaError:
            # Of several runs one that cannot be read has no figures.
            if len(runs) == 1:
                raise
            continue
        for family, labels, value in _samples(status, standings):
            suffix = "_total" if family.kind == "counter" else ""
            marked = _labels({"run": run.slug, **labels})
            samples.setdefault(family, []).append(f"{family.name}{suffix}{marked} {value!r}")
    lines: list[str] = []
    for family in ORDER:
        if family in samples:
            # The older format names a family as its samples.
            old = "_total" if family.kind == "counter" and not openmetrics else ""
            lines.append(f"# HELP {family.name}{old} {family.help}")
            lines.append(f"# TYPE {family.name}{old} {family.kind}")
            lines += samples[family]
    if openmetrics:
        lines.append("# EOF")
    return "\n".join(lines) + "\n"


def _samples(status: Document, standings: Document) -> Iterator[Sample]:
    for key, family in (*COUNTERS.items(), *GAUGES.items()):
        value = status.get(key)
        if isinstance(value, int | float):
            yield family, {}, float(value)
    for state in STATES:
        yield STATE, {"state": state}, float(status["state"] == state)
    for key, family in (("learners", LEARNERS), ("alerts", ALERTS), ("quarantined", QUARANTINED)):
        yield family, {}, float(len(status[key]))
    for population, line in status["champion"].items():
        yield CHAMPION, {"population": population}, float(line["rating"])
    for line in standing_rows(standings):
        # Ghosts do not change, and there may be thousands.
        if line["kind"] == "policy" and line["rating"] is not None:
            yield from _ratings(line)
    for population, share in standings["cyclicity"].items():
        if share is not None:
            yield CYCLICITY, {"population": population}, share


def _ratings(line: Row) -> Iterator[Sample]:
    labels = {"player": str(line["player"])}
    keys = (("rating", RATING), ("rating_low", RATING_LOW), ("rating_high", RATING_HIGH))
    for key, family in keys:
        # An interval that is open above ends at +Inf.
        value = math.inf if key == "rating_high" and line.get("open") else line[key]
        if value is not None:
            yield family, labels, float(value)


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
