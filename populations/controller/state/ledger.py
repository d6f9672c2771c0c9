"""The ledger of failures: how attempts at assignments ended, and whose fault the failed ones are.

One rule holds for all kinds of failure (`PLACES`); `docs/concepts/failure.md` has a table of their
consequences.

1. A failure is first held against its learner, as a *charge*, and another place tries the same
   assignment. If it fails there, too, or there is no other place, no learner is blamed.
2. A policy is blamed only if failures *follow* it: so many of its assignments fail in a row that
   the probability is below 1e-4 if they failed as often as those of all other policies meanwhile.
   Each has then failed in two places. With a single place, two processes must fail
   (`controller.assignments.failures`), or one process that the run cannot replace.
3. Failures that several policies share are held against none of them. While other assignments
   finish, failed ones are given out again; if none finishes, the run is *stalled* (`pauses`).

The ledger is not durable: after a resume each failure is first held against a learner again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from arena.types import AssignmentId, Entrant, LearnerId, PolicyId, policy_of_trainee

FINISHED, LOST, NON_FINITE, STORAGE, OWN_PLACE = (
    "finished",
    "lost",
    "non_finite",
    "storage",
    "place",
)
"""Kinds of outcomes that the rule distinguishes; `arena.wire.messages.Failed` has all others."""

IMPROBABLE = 1e-4
"""Probability of so many failures in a row by chance, below which the failures follow a policy."""

MAX_OUTCOMES = 256
MAX_RECENT = 100
MAX_ALERTED = 3
"""Failures among the last ``MAX_RECENT`` outcomes from which on an alert is raised."""

STALLED_FAILURES = 3
"""Failures in a row, over all assignments, from which on the run is stalled."""


PLACES: Mapping[str, str] = {
    "making": "the environment cannot be made",
    "environment": "the environment breaks",
    "code": "code of your own raises",
    "checkpoint": "a checkpoint cannot be read",
    "message": "results are too large to send",
    STORAGE: "the disk refuses",
    OWN_PLACE: "the learners' machine fails",
    "stopped": "learners stop by themselves",
    LOST: "learners crash or hang",
    NON_FINITE: "a policy's numbers are not finite",
    "error": "assignments fail",
}
"""Description of each kind of failure, as a clause that messages complete."""

LEARNERS = frozenset({OWN_PLACE, "stopped"})
"""Kinds of failure for which only the learner can be blamed."""

NO_POLICYS = LEARNERS | {"making", "checkpoint", "message", STORAGE}
"""Kinds of failure that no policy's numbers can cause."""


class Outcome(Struct, frozen=True, kw_only=True):
    """End of one attempt at an assignment.

    Attributes:
        assignment_id: Assignment.
        kind: ``finished``, ``lost`` (with its learner), or the kind of the learner's Failed.
        is_evaluation: Whether it was an evaluation.
        suspects: Policies that may be to blame, with their generations: those that learned in it
            (of a team the leader), or a newcomer that was evaluated alone. If the learner reports
            with whose weights a network raised an exception, only that policy.
        names_weights: Whether the learner reported frozen weights, which fail with any opponent.
        place: Place of the learner.
        learner: Id of the learner, which is new for each process.
        is_charge: Whether the failure is held against its learner.
        is_outside: Whether a machine that the run did not start, or its network, may be to blame.
        reason: Reason that the learner reported.
        at_s: Time of the end, on the controller's clock.
    """

    assignment_id: AssignmentId
    kind: str
    is_evaluation: bool
    suspects: tuple[Entrant, ...]
    place: str
    learner: LearnerId
    is_charge: bool = False
    is_outside: bool = False
    names_weights: bool = False
    reason: str = ""
    at_s: float = 0.0

    @property
    def is_failure(self) -> bool:
        """Return whether the attempt failed."""
        return self.kind != FINISHED


def num_assignments(outcomes: Iterable[Outcome]) -> int:
    """Count distinct assignments: attempts at one share its seed, so they may all fail alike."""
    return len({one.assignment_id for one in outcomes})


def failures_in_a_row(outcomes: list[Outcome]) -> list[Outcome]:
    """Return the outcomes after the last one that finished."""
    last = max((at for at, one in enumerate(outcomes) if not one.is_failure), default=-1)
    return outcomes[last + 1 :]


class Ledger(Struct):
    """Outcomes since the oldest failure that still counts. Owned by the controller's thread.

    Attributes:
        outcomes: Outcomes in the order in which they came; empty while nothing fails.
        recent: Whether each of the last outcomes was a failure; charges count once their learner
            has finished another assignment.
        num_outcomes: Number of all outcomes so far, which serves as a clock.
        finished: By policy, ``num_outcomes`` when it last finished training.
        failed_since: By quarantined policy, ``num_outcomes`` when its failures began.
    """

    outcomes: list[Outcome] = []
    recent: deque[bool] = field(default_factory=lambda: deque(maxlen=MAX_RECENT))
    num_outcomes: int = 0
    finished: dict[PolicyId, int] = {}
    failed_since: dict[PolicyId, int] = {}

    def add(self, outcome: Outcome) -> None:
        """Record how an attempt ended, and drop outcomes that no longer count."""
        self.num_outcomes += 1
        if outcome.is_failure:
            self.outcomes.append(outcome)
            if not outcome.is_charge:
                self._clear_charges(outcome)
            # A lost process finishes nothing later, so its charges count at once.
            if not outcome.is_charge or outcome.kind == LOST:
                self.recent.append(True)
        else:
            # The learner has finished an assignment, so its charges count as passing failures now.
            charges = self.charges_of(outcome.learner)
            self.recent.extend([*(True for one in charges if one.kind != LOST), False])
            if not outcome.is_evaluation:
                for name in outcome.suspects:
                    self.finished[policy_of_trainee(name)[0]] = self.num_outcomes
            # Successes are only recorded to compare failures with, so not before the first failure.
            if self.outcomes:
                self.outcomes.append(outcome)
                self._forget()
        del self.outcomes[:-MAX_OUTCOMES]

    def withdraw(self, outcome: Outcome) -> None:
        """Remove the failure of a lost learner that turned out to have been only unreachable."""
        self.outcomes = [
            kept
            for kept in self.outcomes
            if (kept.assignment_id, kept.learner, kept.at_s)
            != (outcome.assignment_id, outcome.learner, outcome.at_s)
        ]

    def _clear_charges(self, failure: Outcome) -> None:
        """Drop charges against learners for what has now failed in another place, too."""
        # All learners share the run's disk, so its failures need not be of the same assignment.
        is_disk = failure.kind == STORAGE
        self.outcomes = [
            replace(kept, is_charge=False)
            if kept.is_charge
            and kept.kind not in LEARNERS
            and kept.place != failure.place
            and (kept.assignment_id == failure.assignment_id or (is_disk and kept.kind == STORAGE))
            else kept
            for kept in self.outcomes
        ]

    def _forget(self) -> None:
        """Drop outcomes before the oldest failure that still counts."""
        kept = self.outcomes
        first = next((at for at, old in enumerate(kept) if self._counts(old, at)), len(kept))
        del kept[:first]

    def _counts(self, outcome: Outcome, at: int) -> bool:
        """Return whether an outcome is a failure whose learner or suspects have not finished since.

        Any failure counts until each suspect (without suspects: anybody) finishes an assignment of
        the same kind, and a charge also until its learner finishes anything.
        """
        if not outcome.is_failure:
            return False
        later = [other for other in self.outcomes[at + 1 :] if not other.is_failure]
        if outcome.is_charge and all(other.learner != outcome.learner for other in later):
            return True
        alike = [other for other in later if other.is_evaluation == outcome.is_evaluation]
        return not alike or any(
            all(name not in other.suspects for other in alike) for name in outcome.suspects
        )

    def places_of(self, assignment_id: AssignmentId) -> set[str]:
        """Return the places in which an assignment failed."""
        return {
            one.place
            for one in self.outcomes
            if one.is_failure and one.assignment_id == assignment_id
        }

    def failing_places(self) -> dict[str, float]:
        """Return when each place last failed, for places that have finished nothing since."""
        newest = {one.place: one for one in self.outcomes}
        return {place: one.at_s for place, one in newest.items() if one.is_failure}

    def charges_of(self, learner: LearnerId) -> list[Outcome]:
        """Return the failures in a row that are held against a learner."""
        own = [one for one in self.outcomes if one.learner == learner]
        return [one for one in failures_in_a_row(own) if one.is_charge]

    def has_finished_elsewhere(self, since: Outcome) -> bool:
        """Return whether another place has finished anything since a failure."""
        return any(
            not other.is_failure and other.place != since.place for other in self._after(since)
        )

    def in_a_row(self, name: Entrant, *, is_evaluation: bool) -> list[Outcome]:
        """Return a policy's failures in a row in assignments of one kind, without charges."""
        own = [
            one
            for one in self.outcomes
            if name in one.suspects and one.is_evaluation == is_evaluation and not one.is_charge
        ]
        return failures_in_a_row(own)

    def held_against(self, name: Entrant, *, is_evaluation: bool) -> list[Outcome]:
        """Return a policy's failures in a row that its numbers may have caused."""
        row = self.in_a_row(name, is_evaluation=is_evaluation)
        return [one for one in row if one.kind not in NO_POLICYS]

    def follows(self, name: Entrant, *, is_evaluation: bool) -> bool:
        """Return whether failures follow a policy, because they are too improbable by chance.

        The probability is r^m for m failed assignments in a row. The rate r = (k + 1) / (n + 2) is
        of other policies' n assignments since the first of these, of which k failed (Laplace).
        """
        row = self.held_against(name, is_evaluation=is_evaluation)
        others = self._others(row, name, is_evaluation=is_evaluation)
        # Without a success of any other policy, the environment or the machines may be at fault.
        if all(one.is_failure for one in others):
            return False
        failed = num_assignments(one for one in others if one.is_failure)
        rate = (failed + 1) / (num_assignments(others) + 2)
        return bool(rate ** num_assignments(row) < IMPROBABLE)

    def is_alone(self, name: Entrant, *, is_evaluation: bool) -> bool:
        """Return whether other policies finished since a policy began to fail, and none failed."""
        row = self.held_against(name, is_evaluation=is_evaluation)
        others = self._others(row, name, is_evaluation=is_evaluation)
        return bool(others) and not any(one.is_failure for one in others)

    def _others(
        self, row: Sequence[Outcome], name: Entrant, *, is_evaluation: bool
    ) -> list[Outcome]:
        """Return outcomes of other policies since a row of failures began, of comparable kinds."""
        return [
            one
            for one in (self._after(row[0]) if row else ())
            if name not in one.suspects
            and one.is_evaluation == is_evaluation
            and not one.is_charge
            and one.kind not in NO_POLICYS
        ]

    def suspects(self) -> set[Entrant]:
        """Return the policies that may be to blame for failures, with their generations."""
        return {name for one in self.outcomes if one.is_failure for name in one.suspects}

    def shunned(self) -> set[Entrant]:
        """Return the policies whose frozen weights failed since they last worked.

        They must not be drawn as opponents: every assignment with them would fail, and nothing
        would show that they are to blame.
        """
        named = (one for one in self.outcomes if one.is_failure and one.names_weights)
        names = {name for one in named for name in one.suspects}
        return {
            name
            for name in names
            if any(
                one.names_weights
                for is_evaluation in (False, True)
                for one in self.held_against(name, is_evaluation=is_evaluation)
            )
        }

    def waits(self, name: Entrant, *, is_evaluation: bool) -> bool:
        """Return whether a policy waits after n failures in a row, until others finish n times."""
        row = self.in_a_row(name, is_evaluation=is_evaluation)
        if not row:
            return False
        others = [
            one
            for one in self._after(row[-1])
            if not one.is_failure
            and one.is_evaluation == is_evaluation
            and name not in one.suspects
        ]
        return len(others) < len(row)

    @property
    def failed_evaluations(self) -> int:
        """Return how many evaluations failed since the last one that finished."""
        own = [one for one in self.outcomes if one.is_evaluation and not one.is_charge]
        return len(failures_in_a_row(own))

    @property
    def evaluation_waits(self) -> bool:
        """Return whether training goes first: 1, 2, 4... assignments after 1, 2, 3... failures."""
        failed = self.failed_evaluations
        if not failed:
            return False
        last = [one for one in self.outcomes if one.is_evaluation and one.is_failure][-1]
        trained = sum(not one.is_failure and not one.is_evaluation for one in self._after(last))
        return trained < min(int(2 ** (failed - 1)), MAX_OUTCOMES // 8)

    def stall(self) -> list[Outcome]:
        """Return the failures since any assignment finished; empty unless they stall the run."""
        # Failures of machines outside do not count: their learners wait, and others may join.
        failures = [
            one
            for one in failures_in_a_row(self.outcomes)
            if not one.is_outside and one.kind != "stopped"
        ]
        return failures if len(failures) >= STALLED_FAILURES else []

    def has_recovered(self, donor: PolicyId, *, since: PolicyId) -> bool:
        """Return whether a policy has finished training since the failures of another one began."""
        return self.finished.get(donor, 0) > self.failed_since.get(since, 0)

    def note_quarantine(self, name: Entrant) -> None:
        """Record when the failures began for which a policy is quarantined."""
        rows = [self.in_a_row(name, is_evaluation=evaluation) for evaluation in (False, True)]
        # If the ledger has no failure of the policy, they count as beginning now.
        ago = max((len(self._after(row[0])) + 1 for row in rows if row), default=0)
        self.failed_since[policy_of_trainee(name)[0]] = self.num_outcomes - ago

    def _after(self, since: Outcome) -> list[Outcome]:
        # Search by identity, because two outcomes may be equal.
        at = next(at for at, one in enumerate(self.outcomes) if one is since)
        return self.outcomes[at + 1 :]
