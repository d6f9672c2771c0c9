"""Learners of a run: what each does, how fast, what it waits for, and its faults.

Live figures come from `status.json` while the run goes on, everything else from the journal.

Tests: `tests/populations/views/test_learners.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from populations.records.rows import AssignmentRow, EventRow, Json
from populations.views.notices import alerts_of
from populations.views.parts import picked
from populations.views.questions.inspection import Document
from populations.views.sentences import sentence
from populations.views.texts import seconds

ASSIGNED = ("start_assigned", "train_assigned", "evaluation_assigned")
FAULTS = ("learner_lost", "learner_dismissed", "assignment_failed", "episodes_dropped")
ENDS = ("learner_left", "learner_lost", "learner_dismissed")
KINDS = ("learner_joined", *ENDS, *ASSIGNED, "assignment_failed", "episodes_dropped")
LIVE = (
    *("progress", "agent_steps_per_s", "speeds", "match_s", "straggler", "rss_bytes", "silent_s"),
)
"""Live figures of a learner: null where it does not work any more."""

SHARES = ("share_training", "share_evaluation", "share_waiting")
PAUSES = {"storage_full": "the disk", "stalled": "the end of a pause"}
"""Causes of a pause in which nothing is given out, by the name of its alert."""


@dataclass(slots=True)
class _Learner:
    """Account of one learner, by events and assignments."""

    joined: EventRow
    slot: Json = None
    left: EventRow | None = None
    given: dict[str, EventRow] = field(default_factory=dict)
    faults: list[EventRow] = field(default_factory=list)
    agent_steps: int = 0
    matches: int = 0
    assignments: int = 0
    training_s: float = 0.0
    evaluation_s: float = 0.0


def accounts(
    events: Iterable[EventRow],
    assignments: Iterable[AssignmentRow],
    *,
    status: Mapping[str, Any],
    until: str,
) -> list[Document]:
    """Return the documents of learners.

    Args:
        events: Events of the kinds `KINDS`, oldest first.
        assignments: All assignments.
        status: Document of the view status.
        until: Time of the run's last event.
    """
    known = _from_events(events)
    for row in assignments:
        one = known.get(row.learner or "")
        if one is None or row.status != "finished":
            continue
        one.assignments += 1
        one.agent_steps += row.agent_steps
        one.matches += row.matches
        if row.kind == "train":
            one.training_s += row.duration_s
        else:
            one.evaluation_s += row.duration_s
    live = {str(one["learner"]): one for one in status["learners"]}
    # A new proof begins a new group.
    groups: dict[Json, int] = {}
    in_slot: dict[Json, int] = {}
    documents: list[Document] = []
    for name, one in known.items():
        slot = live[name].get("slot") if name in live else one.slot
        proof = one.joined.data.get("proof")
        documents.append(
            {
                **_now(name, one, live.get(name), status=status),
                **_work(one, until=until),
                "slot": slot,
                "group": None if proof is None else groups.setdefault(proof, len(groups) + 1),
                "restarts": in_slot.get(slot, 0) if slot is not None else 0,
            }
        )
        in_slot[slot] = in_slot.get(slot, 0) + 1
    return documents


def _from_events(events: Iterable[EventRow]) -> dict[str, _Learner]:
    known: dict[str, _Learner] = {}
    holders: dict[str, str] = {}
    for event in events:
        if event.kind == "learner_joined":
            known[event.subject] = _Learner(joined=event)
            continue
        name = event.subject
        if event.kind in ASSIGNED:
            name = holders[event.subject] = str(event.data.get("learner"))
        elif event.kind == "assignment_failed":
            name = holders.get(event.subject, "")
        one = known.get(name)
        if one is None:
            continue
        if event.kind in ASSIGNED:
            one.slot = event.data.get("slot")
            one.given[event.subject] = event
        if event.kind in FAULTS:
            one.faults.append(event)
        if event.kind in ENDS:
            one.left = event
    return known


def _now(
    name: str, one: _Learner, live: Mapping[str, Json] | None, *, status: Mapping[str, Any]
) -> Document:
    """Return what a learner is and does."""
    doing = None if live is None else one.given.get(str(live.get("assignment")))
    state = "gone" if live is None else live.get("state")
    return {
        "learner": name,
        "state": state,
        **{key: one.joined.data.get(key) for key in ("host", "pid", "device")},
        "joined": one.joined.time,
        "left": None if one.left is None else one.left.time,
        "left_reason": None if one.left is None else one.left.data.get("reason"),
        "assignment": None if live is None else live.get("assignment"),
        "doing": None if doing is None else doing.kind.removesuffix("_assigned"),
        "policies": None if doing is None else doing.data.get("policies"),
        "since": None if doing is None else doing.time,
        "waits_for": _waits_for(status) if state == "idle" else None,
        **{key: None if live is None else live.get(key) for key in LIVE},
    }


def _waits_for(status: Mapping[str, Any]) -> str:
    """Return what an idle learner waits for, in words."""
    for alert in alerts_of(status):
        if pause := PAUSES.get(str(alert.get("name"))):
            return f"{pause}: {alert.get('what')}"
    if status.get("phase") != "training":
        return f"the end of the run, which is {status.get('phase')}"
    return "work: all policies are trained by other learners, or wait for a decision"


def _work(one: _Learner, *, until: str) -> Document:
    """Return what a learner has done, by committed assignments."""
    end = one.left.time if one.left is not None else until
    present_s = seconds(one.joined.time, end)
    busy = one.training_s, one.evaluation_s
    # A learner with several slots works on several assignments at once.
    shares: list[float | None] = [None, None, None]
    if present_s:
        total = max(present_s, sum(busy))
        shares = [busy[0] / total, busy[1] / total, (total - sum(busy)) / total]
    return {
        **picked(one, "assignments", "agent_steps", "matches"),
        "mean_agent_steps_per_s": one.agent_steps / one.training_s if one.training_s else None,
        "present_s": present_s,
        **picked(one, "training_s", "evaluation_s"),
        **dict(zip(SHARES, shares, strict=True)),
        "faults": [
            {
                **picked(event, "time", "kind"),
                **{key: event.data.get(key) for key in ("failure", "reason")},
                "sentence": sentence({**event.data, "kind": event.kind, "subject": event.subject}),
            }
            for event in one.faults
        ],
    }
