"""Queue of policies to train, least trained first, updated with each row.

It is not durable: a resumed controller computes it from the journal's rows.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Set

from arena.types import PolicyId
from populations.records.rows import AssignmentRow, PolicyRow
from populations.records.tables import Tables

QueueKey = tuple[int, str, int, PolicyId]
"""Key (agent_steps, population, index, policy); the policy with the smallest key is next."""


class TrainingQueue:
    """Queue of policies to train, least trained first. Owned by the controller's thread.

    A change of a policy adds an entry to a heap and does not remove the old one. Outdated entries
    are dropped when they reach the top.
    """

    def __init__(self, tables: Tables, *, limit: int | None) -> None:
        """Begin with an empty queue, which is filled at the first query.

        Args:
            tables: The journal's rows.
            limit: Agent steps at which a policy stops training; None: there is no limit.
        """
        self._tables = tables
        self.limit = limit
        self._heaps: dict[tuple[str, bool], list[QueueKey]] = {}
        """Keys by population, and whether the policies have a checkpoint."""
        self._starting: set[PolicyId] = set()
        self._aside: set[PolicyId] = set()
        """Policies in ``held_up`` without an entry, which get a new one when they are free."""
        self._is_made = False

    def apply(self, row: PolicyRow | AssignmentRow) -> None:
        """Update the queue by a row that was put into the tables; repetitions do no harm."""
        if not self._is_made:
            return
        if isinstance(row, PolicyRow):
            self._enqueue(row)
        elif row.assignment_id not in self._tables.assignments:
            # The assignment has ended, so its policies get entries again. One that is in a newer
            # assignment is skipped while that is open.
            for policy in row.trained:
                self._enqueue(self._tables.policies[policy])

    def next(self, *, held_up: Set[PolicyId], may_train: Callable[[str], bool]) -> PolicyRow | None:
        """Return the policy that has trained least; of equals, the first by population and index.

        Every policy gets its initial checkpoint before any is trained, and any learner may make it.

        Args:
            held_up: Policies not to be chosen, besides those of open assignments.
            may_train: Function that says whether a population may be trained.
        """
        self._refresh(held_up)
        # Any learner may make initial weights, so ``may_train`` only restricts training.
        heaps = [
            (population, has_checkpoint)
            for population, has_checkpoint in self._heaps
            if not has_checkpoint or (not self._starting and may_train(population))
        ]
        return self._least(heaps, held_up)

    def next_of(self, population: str, *, held_up: Set[PolicyId]) -> PolicyRow | None:
        """Return the least trained policy of a population with a checkpoint; None: none is free.

        See `next` for ``held_up``.
        """
        self._refresh(held_up)
        return self._least([(population, True)], held_up)

    def _least(self, heaps: Iterable[tuple[str, bool]], held_up: Set[PolicyId]) -> PolicyRow | None:
        """Return the least trained policy of some heaps; None: none is free and below the limit."""
        turns = (self._first(heap, held_up) for heap in heaps)
        best = min((turn for turn in turns if turn is not None), default=None)
        # If the policy with the fewest agent steps has reached the limit, all have.
        if best is None or (self.limit is not None and best[0] >= self.limit):
            return None
        return self._tables.policies[best[-1]]

    def _refresh(self, held_up: Set[PolicyId]) -> None:
        if not self._is_made:
            self._is_made = True
            for policy in self._tables.policies.values():
                self._enqueue(policy)
        # These policies are free again, so they get entries again.
        for name in self._aside - held_up:
            self._aside.discard(name)
            self._enqueue(self._tables.policies[name])

    def is_free(self, row: PolicyRow, *, held_up: Set[PolicyId]) -> bool:
        """Return whether a policy has a checkpoint and may be trained; ``held_up`` as in `next`."""
        return (
            row.state == "active"
            and not row.pending
            and row.checkpoint is not None
            and row.policy not in self._tables.assignments.by("trained")
            and row.policy not in held_up
            and (self.limit is None or row.agent_steps < self.limit)
        )

    def _enqueue(self, row: PolicyRow) -> None:
        self._starting.discard(row.policy)
        if row.state != "active":
            return
        # Only policies at step 0 must start before any trains; one that begins anew later need not.
        if row.checkpoint is None and row.agent_steps == 0:
            self._starting.add(row.policy)
        heap = self._heaps.setdefault((row.population, row.checkpoint is not None), [])
        heapq.heappush(heap, (row.agent_steps, row.population, row.index, row.policy))

    def _first(self, of: tuple[str, bool], held_up: Set[PolicyId]) -> QueueKey | None:
        """Return the first entry of a heap that is free and current, and drop entries above it."""
        heap, has_checkpoint = self._heaps.get(of, []), of[1]
        leased = self._tables.assignments.by("trained")
        while heap:
            turn = heap[0]
            row = self._tables.policies[turn[-1]]
            is_current = (
                row.state == "active"
                and not row.pending
                and row.agent_steps == turn[0]
                and (row.checkpoint is not None) == has_checkpoint
            )
            is_leased = row.policy in leased
            if is_current and not is_leased and row.policy not in held_up:
                return turn
            if is_current and not is_leased:
                self._aside.add(row.policy)
            # A leased policy gets a new entry when its lease ends; an outdated one has a newer one.
            heapq.heappop(heap)
        return None
