"""Policies by how little they have trained, kept up to date row by row.

Not durable: it follows from the journal's rows, and a resumed controller makes it anew.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Set

from arena.types import PolicyId
from populations.records.rows import AssignmentRow, PolicyRow
from populations.records.tables import Tables

QueueKey = tuple[int, str, int, PolicyId]
"""agent_steps, population, index, policy: the smallest is the next."""


class TrainingQueue:
    """Policies that may be trained, by how little they have. Owned by the controller's thread.

    Entries of the heaps are never removed when a policy changes; those that no longer say what the
    policy is are skipped when they come up.
    """

    def __init__(self, tables: Tables, *, limit: int | None) -> None:
        """Begin with nothing looked at.

        Args:
            tables: The journal's rows.
            limit: Agent steps from which on nobody trains; None: there is no end.
        """
        self._tables = tables
        self.limit = limit
        self._heaps: dict[tuple[str, bool], list[QueueKey]] = {}
        """Keys by population, and whether the policies have a checkpoint."""
        self._starting: set[PolicyId] = set()
        self._aside: set[PolicyId] = set()
        """Held up ones that have come up: they have no entry until they are free again."""
        self._is_made = False

    def apply(self, row: PolicyRow | AssignmentRow) -> None:
        """Take in a row that was put into the tables, once or more often."""
        if not self._is_made:
            return
        if isinstance(row, PolicyRow):
            self._enqueue(row)
        elif row.assignment_id not in self._tables.assignments:
            # A policy that a newer assignment trains is skipped as long as that is open.
            for policy in row.trained:
                self._enqueue(self._tables.policies[policy])

    def next(self, *, held_up: Set[PolicyId], may_train: Callable[[str], bool]) -> PolicyRow | None:
        """Return the policy that has trained least; of equals, the first by population and index.

        Every policy gets its initial checkpoint before any is trained, and any learner may make it.

        Args:
            held_up: Policies not to be chosen, besides those of open assignments.
            may_train: Whether a population may be trained.
        """
        self._refresh(held_up)
        # Any learner may make initial weights, so only training asks for the population.
        heaps = [
            (population, has_checkpoint)
            for population, has_checkpoint in self._heaps
            if not has_checkpoint or (not self._starting and may_train(population))
        ]
        return self._least(heaps, held_up)

    def next_of(self, population: str, *, held_up: Set[PolicyId]) -> PolicyRow | None:
        """Return the policy of a population that has trained least, of those with a checkpoint.

        Arguments as in `next`.
        """
        self._refresh(held_up)
        return self._least([(population, True)], held_up)

    def _least(self, heaps: Iterable[tuple[str, bool]], held_up: Set[PolicyId]) -> PolicyRow | None:
        """Return the policy of some heaps that has trained least, and not as much as all may."""
        turns = (self._first(heap, held_up) for heap in heaps)
        best = min((turn for turn in turns if turn is not None), default=None)
        # The smallest count comes first: if it has reached the limit, all have.
        if best is None or (self.limit is not None and best[0] >= self.limit):
            return None
        return self._tables.policies[best[-1]]

    def _refresh(self, held_up: Set[PolicyId]) -> None:
        if not self._is_made:
            self._is_made = True
            for policy in self._tables.policies.values():
                self._enqueue(policy)
        # Their mates are free again, so they go back in line.
        for name in self._aside - held_up:
            self._aside.discard(name)
            self._enqueue(self._tables.policies[name])

    def is_free(self, row: PolicyRow, *, held_up: Set[PolicyId]) -> bool:
        """Return whether a policy with a checkpoint may be trained; arguments as in `next`."""
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
        # Policies that begin anew later, without a checkpoint but with steps, hold up no training.
        if row.checkpoint is None and row.agent_steps == 0:
            self._starting.add(row.policy)
        heap = self._heaps.setdefault((row.population, row.checkpoint is not None), [])
        heapq.heappush(heap, (row.agent_steps, row.population, row.index, row.policy))

    def _first(self, of: tuple[str, bool], held_up: Set[PolicyId]) -> QueueKey | None:
        """Return the first entry of a heap that is free and up to date; drop those above it."""
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
            # A leased one comes back when its lease ends, an outdated one has another entry.
            heapq.heappop(heap)
        return None
