"""Learners' logs of acknowledged assignments, compared with the journal.

Everything acknowledged must be in the journal once, as it was sent; everything in the journal must
have been sent. What was committed but not heard of any more lies between the two: the answer was
lost with one of the two processes.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from arena.learners.loop import tally_digest
from arena.types import AssignmentId
from populations.records.rows import AssignmentRow, TallyRow

Lease = tuple[AssignmentId, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two sides of the same conversations, in numbers of tallies.

    Attributes:
        acknowledged: Assignments that learners know to be committed.
        in_journal: Those of the same assignments that the journal has as they were sent.
        unheard: Assignments in the journal whose answer reached no learner any more.
        superseded: Acknowledged to a learner that had been given up: another attempt counts.
        lost: Assignments that were acknowledged and are not in the journal as they were sent; 0.
        invented: Assignments in the journal that no learner sent like this; 0 if sound.
    """

    acknowledged: int
    in_journal: int
    unheard: int
    superseded: int
    lost: int
    invented: int

    @property
    def is_sound(self) -> bool:
        """Whether both sides agree."""
        return not self.lost and not self.invented and self.acknowledged == self.in_journal


def compare(
    directory: Path, assignments: Iterable[AssignmentRow], tallies: Iterable[TallyRow]
) -> Comparison:
    """Read what the learners wrote to a directory, and hold the journal against it."""
    sent, acknowledged = _read(directory)
    recorded: dict[AssignmentId, list[str]] = defaultdict(list)
    for tally in tallies:
        recorded[tally.assignment_id].append(tally_digest(tally.tally))
    finished = {row.assignment_id: row for row in assignments if row.status == "finished"}
    leases = {(row.assignment_id, row.attempt) for row in finished.values()}
    in_journal = superseded = lost = num_acknowledged = 0
    for lease in acknowledged & sent.keys():
        row = finished.get(lease[0])
        if row is not None and row.attempt != lease[1]:
            superseded += len(sent[lease])
            continue
        num_acknowledged += len(sent[lease])
        if row is not None and recorded[lease[0]] == sent[lease]:
            in_journal += len(sent[lease])
        else:
            lost += 1
    unheard = [lease for lease in leases - acknowledged if sent.get(lease) == recorded[lease[0]]]
    return Comparison(
        acknowledged=num_acknowledged,
        in_journal=in_journal,
        unheard=sum(len(sent[lease]) for lease in unheard),
        superseded=superseded,
        lost=lost,
        invented=sum(sent.get(lease) != recorded[lease[0]] for lease in leases),
    )


def _read(directory: Path) -> tuple[dict[Lease, list[str]], set[Lease]]:
    sent: dict[Lease, list[str]] = {}
    acknowledged: set[Lease] = set()
    for path in sorted(directory.glob("*.jsonl")):
        # The last line is dropped: a killed learner may have left half a line.
        for line in path.read_text().split("\n")[:-1]:
            noted = json.loads(line)
            number, attempt = noted["lease"]
            lease = (AssignmentId(number), int(attempt))
            if noted["what"] == "sent":
                sent[lease] = noted["tallies"]
            else:
                acknowledged.add(lease)
    return sent, acknowledged
