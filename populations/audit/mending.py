"""Repair of the damage that a faulty learner may have done to a run of an older release. Pure.

Checkpoints and ghosts marked corrupt that verify come back, with the policies that were quarantined
because of them. Impossible counters fall back to the newest checkpoint below. Open assignments that
cannot be sent are failed, so that others replace them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from msgspec import structs

from arena.errors import WireError
from arena.types import MAX_AGENT_STEPS, PolicyId
from arena.wire.messages import Train
from populations.config.message_sizes import check_sendable
from populations.records.rows import (
    AssignmentRow,
    CheckpointRow,
    EventRow,
    GhostRow,
    Json,
    PolicyRow,
    Row,
)
from populations.records.tables import Tables
from populations.storage.store import newest_last

Verifies = Callable[[CheckpointRow | GhostRow], bool]
"""Function that checks every byte of a checkpoint or ghost."""


def mend(
    tables: Tables, assignments: Sequence[AssignmentRow], *, verifies: Verifies, utc: str
) -> list[Row]:
    """Return the rows that change, with an event for each change.

    Args:
        tables: Rows of the journal; not changed.
        assignments: Assignments of the journal, ended ones included.
        verifies: Check of a checkpoint's or ghost's bytes.
        utc: Time of the events.

    Returns:
        Rows to commit in one transaction; empty if there is nothing to repair.
    """
    draft = _Draft(tables, assignments, verifies)
    # Counters first: it marks checkpoints corrupt that `_reactivate` must not choose.
    draft.lower_counters()
    draft.bring_back()
    # Last: it looks at the policies changed until here.
    draft.fail_unsendable()
    events = [
        EventRow(sequence=sequence, time=utc, kind=kind, subject=subject, data=data)
        for sequence, (kind, subject, data) in enumerate(draft.notes, start=tables.num_events + 1)
    ]
    return [*draft.rows.values(), *events]


@dataclass(slots=True)
class _Draft:
    """Changed rows by subject."""

    tables: Tables
    assignments: Sequence[AssignmentRow]
    verifies: Verifies
    rows: dict[object, Row] = field(default_factory=dict)
    notes: list[tuple[str, str, dict[str, Json]]] = field(default_factory=list)

    def lower_counters(self) -> None:
        """Take back agent steps that no policy can have trained."""
        tables = self.tables
        lies = [row for row in tables.checkpoints.values() if row.agent_steps > MAX_AGENT_STEPS]
        for row in lies:
            self.rows[row.key] = replace(row, state="corrupt")
            self._note("checkpoint_corrupt", row.policy, key=row.key, reason="unbelievable counter")
        for ghost in tables.ghosts.values():
            if ghost.agent_steps > MAX_AGENT_STEPS:
                self.rows[ghost.player] = replace(ghost, corrupt=True)
                self._note("ghost_corrupt", ghost.player, reason="unbelievable counter")
        for policy in tables.policies.values():
            if policy.agent_steps > MAX_AGENT_STEPS:
                self._lower(policy)
        run, too_many, num_trained = tables.run, 0, 0
        for assignment in self.assignments:
            if assignment.status == "finished" and assignment.agent_steps > MAX_AGENT_STEPS:
                too_many += assignment.agent_steps
                num_trained += 1
                # The run's counters are sums over these rows, and assignments of 0 steps are not
                # counted as training.
                self.rows[assignment.assignment_id] = replace(assignment, agent_steps=0)
        if num_trained:
            self.rows["run"] = replace(
                run,
                agent_steps=run.agent_steps - too_many,
                training_assignments=run.training_assignments - num_trained,
            )

    def _lower(self, policy: PolicyRow) -> None:
        own = [
            row
            for row in self.tables.checkpoints.values()
            if row.policy == policy.policy
            and row.state == "present"
            and row.agent_steps <= MAX_AGENT_STEPS
        ]
        # Without a credible checkpoint the policy begins anew, at 0 steps.
        newest = max(own, key=newest_last, default=None)
        steps = 0 if newest is None else newest.agent_steps
        self.rows[policy.policy] = replace(
            policy,
            agent_steps=steps,
            learner_updates=0 if newest is None else newest.learner_updates,
            checkpoint=None if newest is None else newest.key,
            # The next decision, ghost and generation are counted from these marks: above the
            # lowered counter they would not come for billions of steps.
            ready_at=min(policy.ready_at, steps),
            ghost_at=min(policy.ghost_at, steps),
            generation_at=min(policy.generation_at, steps),
        )
        self._note("counters_lowered", policy.policy, before=policy.agent_steps, after=steps)
        for generation in self.tables.generations.values():
            last = max(generation.agent_steps_begin, generation.agent_steps_end or 0)
            if generation.policy == policy.policy and last > MAX_AGENT_STEPS:
                end = generation.agent_steps_end
                self.rows[generation.entrant] = replace(
                    generation,
                    agent_steps_begin=min(generation.agent_steps_begin, steps),
                    agent_steps_end=None if end is None else min(end, steps),
                )

    def bring_back(self) -> None:
        """Restore checkpoints and ghosts marked corrupt whose bytes are right."""
        for row in self.tables.checkpoints.values():
            # Its bytes may be right all the same: the learner wrote the counter into the manifest.
            is_lie = row.agent_steps > MAX_AGENT_STEPS
            if row.state == "corrupt" and not is_lie and self.verifies(row):
                self.rows[row.key] = replace(row, state="present")
                self._note("checkpoint_restored", row.policy, key=row.key)
        for ghost in self.tables.ghosts.values():
            if ghost.corrupt and ghost.agent_steps <= MAX_AGENT_STEPS and self.verifies(ghost):
                self.rows[ghost.player] = replace(ghost, corrupt=False)
                self._note("ghost_restored", ghost.player, key=ghost.key)
        for policy in self.tables.policies.values():
            if policy.state == "quarantined" and self._lost_its_checkpoint(policy):
                self._reactivate(policy)

    def _lost_its_checkpoint(self, policy: PolicyRow) -> bool:
        """Return whether a policy was quarantined because of a corrupt checkpoint."""
        row = self.tables.checkpoints.get(policy.checkpoint or "")
        return row is not None and row.state == "corrupt"

    def _reactivate(self, policy: PolicyRow) -> None:
        present = [
            row
            for row in map(self._checkpoint, self.tables.checkpoints)
            if row.policy == policy.policy and row.state == "present"
        ]
        # Without one it stays in quarantine: no checkpoint would mean random weights.
        if present:
            newest = max(present, key=newest_last)
            # Its counters may have been lowered already.
            mended = self.rows.get(policy.policy, policy)
            assert isinstance(mended, PolicyRow)
            self.rows[policy.policy] = replace(mended, state="active", checkpoint=newest.key)
            self._note("policy_restored", policy.policy, checkpoint=newest.key)

    def _checkpoint(self, key: str) -> CheckpointRow:
        # The draft's own row first: an earlier step may have restored it.
        row = self.rows.get(key, self.tables.checkpoints[key])
        assert isinstance(row, CheckpointRow), "a key names a checkpoint"
        return row

    def fail_unsendable(self) -> None:
        """Fail open assignments that no message can carry."""
        changed = {PolicyId(str(name)) for name in self.rows if name in self.tables.policies}
        for assignment in self.tables.assignments.values():
            reason = _unsendable(assignment)
            if reason is not None or changed & _trainees(assignment):
                reason = reason or "the counters of its trainee were lowered"
                failed = replace(assignment, status="failed", reason=reason)
                self.rows[assignment.assignment_id] = failed
                subject = str(assignment.assignment_id)
                self._note("assignment_failed", subject, failure="repair", reason=reason)

    def _note(self, kind: str, subject: str, **data: Json) -> None:
        self.notes.append((kind, subject, data))


def _unsendable(assignment: AssignmentRow) -> str | None:
    try:
        check_sendable(structs.replace(assignment.message, attempt=assignment.attempt + 1))
    except WireError as error:
        return str(error)
    return None


def _trainees(assignment: AssignmentRow) -> set[PolicyId]:
    message = assignment.message
    return {trainee.policy for trainee in message.trainees} if isinstance(message, Train) else set()
