"""Definition of what is retained, from all rows at once.

`populations.storage.store` gives the same answers without all rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from arena.types import AssignmentId, PlayerId, PolicyId
from populations.records.rows import AssignmentRow, CheckpointRow, GhostRow, PolicyRow
from populations.storage.store import milestones, named_by, newest_last


def retained(
    *,
    policies: Mapping[PolicyId, PolicyRow],
    checkpoints: Mapping[str, CheckpointRow],
    ghosts: Mapping[PlayerId, GhostRow],
    assignments: Mapping[AssignmentId, AssignmentRow],
    keep: int | None,
    milestones_every_agent_steps: int | None,
    pinned: Collection[str] = (),
) -> list[str]:
    """Return the keys of checkpoints that need not be retained and may be marked as doomed.

    Retained are every policy's current checkpoint (its donor's after an exploit), the donor's that
    a pending decision names, every policy's newest ``keep``, the sources of ghosts that are not
    linked yet, the first checkpoint of every exploiter (it may restart from it), everything that an
    open assignment names, milestones, and ``pinned``.

    Args:
        policies: All policies.
        checkpoints: Candidates; only present ones are considered.
        ghosts: All ghosts.
        assignments: Open assignments.
        keep: Number of newest checkpoints to keep per policy. None keeps everything.
        milestones_every_agent_steps: Interval of milestones: of each policy, the first present
            checkpoint at or after each multiple is kept.
        pinned: Keys of the best checkpoints and of the champion.

    Returns:
        Sorted keys.

    Raises:
        ValueError: If ``keep`` is below 1.
    """
    if keep is None:
        return []
    if keep < 1:
        raise ValueError(f"keep must be at least 1, got {keep}")
    present: dict[PolicyId, list[CheckpointRow]] = {}
    for row in checkpoints.values():
        if row.state == "present":
            present.setdefault(row.policy, []).append(row)
    needed = set(pinned)
    for holders in (policies.values(), ghosts.values(), assignments.values()):
        for holder in holders:
            needed.update(named_by(holder))
    for rows in present.values():
        rows.sort(key=newest_last)
        # keep is at least 1; rows[-0:] would be all rows.
        needed.update(row.key for row in rows[-keep:])
        if milestones_every_agent_steps is not None:
            needed.update(milestones(rows, every_agent_steps=milestones_every_agent_steps))
    return sorted(row.key for rows in present.values() for row in rows if row.key not in needed)
