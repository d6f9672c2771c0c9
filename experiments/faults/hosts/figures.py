"""Counts of a run on several hosts, from its journal, its learners' logs and the wire."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from experiments.faults.ack_logs import Comparison, compare
from experiments.faults.hosts.capture import Capture, needles_of, search
from experiments.faults.hosts.network import CONTROLLER
from experiments.faults.hosts.world import World, gather
from populations.records.rows import AssignmentRow
from populations.storage.database import JOURNAL
from populations.storage.journal import JournalReader

KINDS = (
    *("learner_joined", "learner_lost", "learner_left", "learner_dismissed", "learner_refused"),
    *("assignment_failed", "storage_full", "storage_recovered", "quarantined", "fell_back"),
    *("checkpoint_corrupt", "ghost_corrupt"),
)
"""Kinds of events that are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Checkpoints that travelled to and from learners of other hosts, by finished assignments.

    Attributes:
        assignments: Number of them.
        fetched_bytes: Mean bytes fetched for one.
        given_bytes: Mean bytes given after one.
        requests: Mean requests about one.
        waited_share: Seconds of fetching and giving, as a share of all of their seconds.
        slowest_s: The longest that one fetched and gave.
    """

    assignments: int
    fetched_bytes: int
    given_bytes: int
    requests: float
    waited_share: float
    slowest_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Result of a regime.

    Attributes:
        regime: Its name.
        minutes: From the first work of every host to the stop.
        assignments: Finished assignments by host.
        agent_steps_per_s: Rate of all hosts together.
        traffic: Checkpoints on the wire.
        wire_bytes_per_hour: All bytes at the controller's port.
        exit_codes: Exit codes of learners, by host.
        events: Counts of `KINDS`.
        failures: Failed assignments by kind, each with a reason.
        tallies: Tallies that learners know, beside the journal's.
        faults: Faults by `arena verify`.
        left: Processes and files that were left behind.
        capture: Result of the search for cleartext.
        noted: Notes of the regime: seconds until each host worked again, for example.
    """

    regime: str
    minutes: float
    assignments: dict[str, int]
    agent_steps_per_s: int
    traffic: Traffic | None
    wire_bytes_per_hour: int
    exit_codes: dict[str, list[int]]
    events: dict[str, int]
    failures: dict[str, str]
    tallies: Comparison
    faults: list[str]
    left: list[str]
    capture: Capture
    noted: dict[str, list[object]]

    @property
    def is_sound(self) -> bool:
        """Whether nothing was lost, twice, damaged, blamed, left behind or readable."""
        return (
            self.tallies.is_sound
            and not self.faults
            and not self.left
            and not self.events.get("quarantined")
            and self.capture.is_secret
            and all(self.assignments.values())
        )


def traffic_of(rows: Sequence[AssignmentRow]) -> Traffic | None:
    """Return the means of rows that remote learners have ended; None if there are none."""
    metrics = [row.metrics for row in rows if "store/requests" in row.metrics]
    if not metrics:
        return None
    waits_s = [one["time/fetch_s"] + one["time/give_s"] for one in metrics]
    durations_s = [row.duration_s for row in rows if "store/requests" in row.metrics]
    return Traffic(
        assignments=len(metrics),
        fetched_bytes=round(mean(one["store/fetched_bytes"] for one in metrics)),
        given_bytes=round(mean(one["store/given_bytes"] for one in metrics)),
        requests=round(mean(one["store/requests"] for one in metrics), 2),
        waited_share=round(sum(waits_s) / sum(durations_s), 4),
        slowest_s=round(max(waits_s), 2),
    )


def figures_of(
    world: World, *, regime: str, seconds: float, agent_steps: int, left: Sequence[str]
) -> Figures:
    """Count it all, after the stop."""
    with JournalReader(world.run.run / JOURNAL) as reader, reader.snapshot():
        tables = reader.load()
        rows = reader.assignments()
        tallies = reader.tallies()
        events = reader.events()
    failures = {
        str(event.data.get("failure")): str(event.data.get("reason"))[-300:]
        for event in events
        if event.kind == "assignment_failed"
    }
    roots: list[Path] = [world.run.run, *(one.cache for one in world.learners.values())]
    needles = needles_of(roots, run_id=tables.run.run, policies=tables.policies)
    capture = search(world.directory / "capture.pcap", needles)
    finished = [row for row in rows if row.status == "finished"]
    by_host = Counter({CONTROLLER: 0, **dict.fromkeys(world.learners, 0)})
    by_host.update(world.host_of(row) for row in finished)
    counts = Counter(event.kind for event in events)
    return Figures(
        regime=regime,
        minutes=round(seconds / 60.0, 2),
        assignments=dict(by_host),
        agent_steps_per_s=round(agent_steps / seconds),
        traffic=traffic_of(finished),
        wire_bytes_per_hour=round(capture.wire_bytes / seconds * 3600.0),
        exit_codes={host: learner.codes for host, learner in world.learners.items()},
        events={kind: counts[kind] for kind in KINDS if counts[kind]},
        failures=failures,
        tallies=compare(gather(world), rows, tallies),
        faults=world.run.faults,
        left=list(left),
        capture=capture,
        noted=world.noted,
    )
