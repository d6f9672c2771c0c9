"""Figures of runs in the text format of Prometheus, or in OpenMetrics.

Tests: `tests/tools/web/test_exposition.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from arena.errors import ArenaError
from populations.views.league import standing_rows
from populations.views.parts import Document

from .runs import Run

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

STATES = ("running", "stopped", "finished", "failed", "crashed")


Labels = Mapping[str, str]
Samples = Iterator[tuple[Labels, object]]


class Family(NamedTuple):
    """Family of metrics.

    Attributes:
        name: Its name, without the suffix of counters.
        help: Sentence about it.
        samples: Function that yields labels and values of the documents of a run's status and
            standings; a value that is no number is left out.
        kind: Kind of metric.
    """

    name: str
    help: str
    samples: Callable[[Document, Document], Samples]
    kind: Literal["counter", "gauge"] = "gauge"


def _figure(key: str) -> Callable[[Document, Document], Samples]:
    return lambda status, _: iter([({}, status.get(key))])


def _number(key: str) -> Callable[[Document, Document], Samples]:
    return lambda status, _: iter([({}, len(status[key]))])


def _counter(name: str, key: str, about: str) -> Family:
    return Family(name, about, _figure(key), "counter")


def _ratings(key: str) -> Callable[[Document, Document], Samples]:
    def samples(_: Document, standings: Document) -> Samples:
        for line in standing_rows(standings):
            # Ratings of ghosts are left out: ghosts do not change, and there may be thousands.
            if line["kind"] == "policy" and line["rating"] is not None:
                # An interval without an upper bound ends at +Inf.
                is_open = key == "rating_high" and line.get("open")
                yield {"player": str(line["player"])}, math.inf if is_open else line[key]

    return samples


def _states(status: Document, _: Document) -> Samples:
    return (({"state": state}, status["state"] == state) for state in STATES)


def _champions(status: Document, _: Document) -> Samples:
    champions = status["champion"].items()
    return (({"population": name}, line["rating"]) for name, line in champions)


def _cyclicity(_: Document, standings: Document) -> Samples:
    return (({"population": name}, share) for name, share in standings["cyclicity"].items())


FAMILIES = (
    _counter("arena_agent_steps", "agent_steps", "Committed agent steps."),
    _counter("arena_matches", "matches", "Committed matches."),
    _counter("arena_assignments", "assignments_finished", "Finished assignments."),
    _counter("arena_copies", "exploits", "Copies of weights by PBT."),
    _counter("arena_elapsed_seconds", "elapsed_s", "Seconds that the run has taken."),
    Family("arena_ghosts", "Ghosts that are kept.", _figure("ghosts")),
    Family("arena_checkpoints", "Checkpoints on disk.", _figure("checkpoints")),
    Family(
        "arena_agent_steps_per_second",
        "Agent steps per second, over the last 30 s.",
        _figure("agent_steps_per_s"),
    ),
    Family("arena_run_state", "1 for the state that the run is in.", _states),
    Family("arena_learners", "Learners that are connected.", _number("learners")),
    Family("arena_alerts", "Alerts that are raised.", _number("alerts")),
    Family("arena_quarantined_policies", "Policies in quarantine.", _number("quarantined")),
    Family("arena_rating_elo", "Rating of a policy; bot:random is at 0.", _ratings("rating")),
    Family("arena_rating_low_elo", "Lower end of the 95% interval.", _ratings("rating_low")),
    Family("arena_rating_high_elo", "Upper end of the 95% interval.", _ratings("rating_high")),
    Family("arena_champion_rating_elo", "Rating of a population's champion.", _champions),
    Family("arena_cyclicity_ratio", "Share of the results that no rating can express.", _cyclicity),
)


def exposition(runs: Sequence[Run], *, openmetrics: bool) -> str:
    """Return the figures of all runs as text.

    Args:
        runs: Runs.
        openmetrics: Whether in OpenMetrics, or in the older format of Prometheus.
    """
    known: list[tuple[str, Document, Document]] = []
    for run in runs:
        try:
            documents = run.documents(["status", "standings"])
            known.append((run.slug, documents["status"], documents["standings"]))
        except ArenaError:
            # An unreadable run among several has no metrics.
            if len(runs) == 1:
                raise
    lines: list[str] = []
    for family in FAMILIES:
        total = "_total" if family.kind == "counter" else ""
        found = [
            f"{family.name}{total}{_labels({'run': slug, **labels})} {float(value)!r}"
            for slug, *both in known
            for labels, value in family.samples(*both)
            if isinstance(value, int | float)
        ]
        # The older text format names a family like its samples.
        name = family.name + ("" if openmetrics else total)
        head = [f"# HELP {name} {family.help}", f"# TYPE {name} {family.kind}"]
        lines += [*head, *found] if found else []
    return "\n".join([*lines, *(["# EOF"] if openmetrics else [])]) + "\n"


def _labels(labels: Labels) -> str:
    return "{" + ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
