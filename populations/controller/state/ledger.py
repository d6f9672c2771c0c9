"""The ledger of failures: how attempts at assignments ended, and whose fault the failed ones are.

One rule for all kinds of failure. A failure has a *place* (`PLACES`); `docs/concepts/failure.md`
has their consequences as a table.

1. A failure is first its learner's: it is a *charge*, and another place tries the same assignment.
   Once that fails there, too, or where there is no other place, it is no learner's.
2. It is a policy's only if it *follows* the policy: so many assignments in a row fail with it as
   would fail by chance in less than one of ten thousand cases, if they failed as often as those of
   all others do meanwhile. Each has then failed on two places; on the only one it takes two
   processes (`controller.assignments.failures`), but of a learner from elsewhere one must do.
3. What several suffer alike is nobody's. As long as anybody finishes, it is counted and given out
   again; once nobody has finished since it began, the run is *stalled* (`pauses`).

Not durable: after a resume each failure is first a learner's again.
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
"""Kinds of outcomes that the rule tells apart; the others are those of `arena.wire` Failed."""

IMPROBABLE = 1e-4
"""Probability of failures in a row by chance, below which they follow a policy."""

MAX_OUTCOMES = 256
MAX_RECENT = 100
MAX_ALERTED = 3
"""Failures among the last ones from which on people are told."""

STALLED_FAILURES = 3
"""Failures in a row, over all that is given out, from which on the run is stalled."""


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
"""Trouble by the place that a kind of failure comes from, as a sentence without its end."""

LEARNERS = frozenset({OWN_PLACE, "stopped"})
"""Places for which nothing but the learner can be blamed."""

NO_POLICYS = LEARNERS | {"making", "checkpoint", "message", STORAGE}
"""Places in which no policy's numbers can cause a failure."""


class Outcome(Struct, frozen=True, kw_only=True):
    """End of one attempt at an assignment.

    Attributes:
        assignment_id: Assignment.
        kind: ``finished``, ``lost`` (with its learner), or the kind of the learner's Failed.
        is_evaluation: Whether it was an evaluation.
        suspects: Policies that learned in it, or the newcomer that was evaluated alone, with their
            generations: a failure may be theirs. Of a team the leader. Where the learner says whose
            weights it was that a network raised with, that one alone.
        names_weights: Whether these were frozen, so that whoever meets them fails.
        place: Place of the learner.
        learner: Learner; each process is another one.
        is_charge: Whether the failure is held against its learner.
        is_outside: Whether only a machine that is not the run's, or its line, may be to blame.
        reason: Words of the learner.
        at_s: Controller's clock.
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
        """Return whether it failed."""
        return self.kind != FINISHED


def num_assignments(outcomes: Iterable[Outcome]) -> int:
    """Count the assignments of some attempts: its seed lets one fail alike wherever it is tried."""
    return len({one.assignment_id for one in outcomes})


def failures_in_a_row(outcomes: list[Outcome]) -> list[Outcome]:
    """Return the outcomes after the last one that finished."""
    last = max((at for at, one in enumerate(outcomes) if not one.is_failure), default=-1)
    return outcomes[last + 1 :]


class Ledger(Struct):
    """Outcomes since the oldest failure that still counts. Owned by the controller's thread.

    Attributes:
        outcomes: In the order in which they came; empty while nothing fails.
        recent: Whether each of the last outcomes was a failure; charges count once their learner
            works again.
        num_outcomes: All so far, as a clock.
        finished: By policy the clock when it last finished training.
        failed_since: By quarantined policy the clock when its failures began.
    """

    outcomes: list[Outcome] = []
    recent: deque[bool] = field(default_factory=lambda: deque(maxlen=MAX_RECENT))
    num_outcomes: int = 0
    finished: dict[PolicyId, int] = {}
    failed_since: dict[PolicyId, int] = {}

    def add(self, outcome: Outcome) -> None:
        """Take in how an attempt ended."""
        self.num_outcomes += 1
        if outcome.is_failure:
            self.outcomes.append(outcome)
            if not outcome.is_charge:
                self._clear_charges(outcome)
            # A process that was lost does not work again.
            if not outcome.is_charge or outcome.kind == LOST:
                self.recent.append(True)
        else:
            # What a learner failed before it works again is no lasting trouble of its own.
            charges = self.charges_of(outcome.learner)
            self.recent.extend([*(True for one in charges if one.kind != LOST), False])
            if not outcome.is_evaluation:
                for name in outcome.suspects:
                    self.finished[policy_of_trainee(name)[0]] = self.num_outcomes
            # Where nothing failed, nothing is compared with what finishes.
            if self.outcomes:
                self.outcomes.append(outcome)
                self._forget()
        del self.outcomes[:-MAX_OUTCOMES]

    def withdraw(self, outcome: Outcome) -> None:
        """Forget a failure that was none: the learner was only out of reach."""
        self.outcomes = [
            kept
            for kept in self.outcomes
            if (kept.assignment_id, kept.learner, kept.at_s)
            != (outcome.assignment_id, outcome.learner, outcome.at_s)
        ]

    def _clear_charges(self, failure: Outcome) -> None:
        """Clear learners of what failed on another place alike."""
        # One disk is everybody's, so what was given does not matter.
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
        """Return whether an outcome is a failure after which somebody has not finished yet."""
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
        """Return the places at which an assignment failed."""
        return {
            one.place
            for one in self.outcomes
            if one.is_failure and one.assignment_id == assignment_id
        }

    def failing_places(self) -> dict[str, float]:
        """Return when each place failed last, of those that have finished nothing since."""
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
        """Return the failures of a policy since it last finished the like, charges left out."""
        own = [
            one
            for one in self.outcomes
            if name in one.suspects and one.is_evaluation == is_evaluation and not one.is_charge
        ]
        return failures_in_a_row(own)

    def held_against(self, name: Entrant, *, is_evaluation: bool) -> list[Outcome]:
        """Return those failures in a row that a policy's numbers may have caused."""
        row = self.in_a_row(name, is_evaluation=is_evaluation)
        return [one for one in row if one.kind not in NO_POLICYS]

    def follows(self, name: Entrant, *, is_evaluation: bool) -> bool:
        """Return whether failures follow a policy: by chance they are too improbable.

        The chance is that of as many failed assignments in a row at the rate r of all others since
        the first one, r = (k + 1) / (n + 2) for k that failed of n (Laplace's rule of succession).
        """
        row = self.held_against(name, is_evaluation=is_evaluation)
        others = self._others(row, name, is_evaluation=is_evaluation)
        # Nobody else has shown that it can be done.
        if all(one.is_failure for one in others):
            return False
        failed = num_assignments(one for one in others if one.is_failure)
        rate = (failed + 1) / (num_assignments(others) + 2)
        return bool(rate ** num_assignments(row) < IMPROBABLE)

    def is_alone(self, name: Entrant, *, is_evaluation: bool) -> bool:
        """Return whether of all that was tried since a policy began to fail only it fails."""
        row = self.held_against(name, is_evaluation=is_evaluation)
        others = self._others(row, name, is_evaluation=is_evaluation)
        return bool(others) and not any(one.is_failure for one in others)

    def _others(
        self, row: Sequence[Outcome], name: Entrant, *, is_evaluation: bool
    ) -> list[Outcome]:
        """Return what others did since a row of failures began, of the kinds that it is made of."""
        return [
            one
            for one in (self._after(row[0]) if row else ())
            if name not in one.suspects
            and one.is_evaluation == is_evaluation
            and not one.is_charge
            and one.kind not in NO_POLICYS
        ]

    def suspects(self) -> set[Entrant]:
        """Return the policies that failures may be the fault of, with their generations."""
        return {name for one in self.outcomes if one.is_failure for name in one.suspects}

    def shunned(self) -> set[Entrant]:
        """Return the policies whose weights failed since they last worked: nobody is to meet them.

        Else everybody would fail that meets them, and nothing would show whose fault it is.
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
        """Return whether a policy lets others go first: as often as it has failed in a row."""
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
        """Return whether training goes first: 1, 2, 4... assignments after evaluations failed."""
        failed = self.failed_evaluations
        if not failed:
            return False
        last = [one for one in self.outcomes if one.is_evaluation and one.is_failure][-1]
        trained = sum(not one.is_failure and not one.is_evaluation for one in self._after(last))
        return trained < min(int(2 ** (failed - 1)), MAX_OUTCOMES // 8)

    def stall(self) -> list[Outcome]:
        """Return the failures since anybody finished; none unless they stall the run."""
        # Learners elsewhere wait outside, and others may come.
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
        """Note when the failures began for which a policy is quarantined."""
        rows = [self.in_a_row(name, is_evaluation=evaluation) for evaluation in (False, True)]
        # Without a failure that is known here they begin now.
        ago = max((len(self._after(row[0])) + 1 for row in rows if row), default=0)
        self.failed_since[policy_of_trainee(name)[0]] = self.num_outcomes - ago

    def _after(self, since: Outcome) -> list[Outcome]:
        # By identity, for two outcomes may be equal.
        at = next(at for at, one in enumerate(self.outcomes) if one is since)
        return self.outcomes[at + 1 :]
