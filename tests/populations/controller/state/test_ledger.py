"""The one rule of blame, by hand-computed numbers: charges, what follows a policy, stalls."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.types import AssignmentId, Entrant, LearnerId
from populations.controller.state.ledger import FINISHED, MAX_OUTCOMES, Ledger, Outcome

BAD, GOOD = Entrant("p/p000#0"), Entrant("p/p001#0")


def outcome(
    number: int,
    kind: str = "error",
    *suspects: Entrant,
    place: str = "slot 0",
    evaluation: bool = False,
    charge: bool = False,
    outside: bool = False,
) -> Outcome:
    return Outcome(
        assignment_id=AssignmentId(number),
        kind=kind,
        is_evaluation=evaluation,
        suspects=suspects,
        place=place,
        learner=LearnerId(f"learner at {place}"),
        is_charge=charge,
        is_outside=outside,
        reason="it broke",
    )


def ledger_of(*outcomes: Outcome) -> Ledger:
    ledger = Ledger()
    for one in outcomes:
        ledger.add(one)
    return ledger


def follows_after(failures: int, finishes: int, *, failed: int = 0) -> bool:
    """Failures of one, and in between what others finished and failed."""
    ledger = ledger_of(outcome(0, "error", BAD))
    for number in range(finishes):
        ledger.add(outcome(100 + number, FINISHED, GOOD))
    for number in range(failed):
        ledger.add(outcome(200 + number, "error", GOOD))
    for number in range(1, failures):
        ledger.add(outcome(number, "error", BAD))
    return ledger.follows(BAD, is_evaluation=False)


def test_failures_follow_a_policy_below_one_chance_in_ten_thousand() -> None:
    # r = (k + 1) / (n + 2): (1/7)^4 = 4.2e-4, (1/7)^5 = 5.9e-5; (1/10)^4 = 1.0e-4 is not below.
    assert not follows_after(4, 5)
    assert follows_after(5, 5)
    assert not follows_after(4, 8)
    assert follows_after(4, 9)
    # (2/12)^5 = 1.3e-4, (2/12)^6 = 2.1e-5
    assert not follows_after(5, 9, failed=1)
    assert follows_after(6, 9, failed=1)


def test_nothing_follows_a_policy_while_nobody_else_finishes() -> None:
    assert not follows_after(100, 0)
    assert not follows_after(100, 0, failed=100)


def test_one_assignment_alone_does_not_show_that_a_policy_is_to_blame() -> None:
    # (1/101)^2 = 9.8e-5
    finished = [outcome(number, FINISHED, GOOD) for number in range(1, 100)]
    again = [outcome(0, "error", BAD) for _ in range(10)]
    ledger = ledger_of(outcome(0, "error", BAD), *finished, *again)
    assert not ledger.follows(BAD, is_evaluation=False)
    ledger.add(outcome(150, "error", BAD))
    assert ledger.follows(BAD, is_evaluation=False)


def test_an_assignment_that_failed_on_two_learners_counts_once() -> None:
    def tried(*assignments: int, who: Entrant) -> list[Outcome]:
        return [
            outcome(number, "error", who, place=place, charge=place == "slot 0")
            for number in assignments
            for place in ("slot 0", "slot 1")
        ]

    finished = [outcome(100 + number, FINISHED, GOOD) for number in range(9)]
    # (1/11)^3 = 7.5e-4, (1/11)^4 = 6.8e-5; counted by attempts the power would be 6 already.
    ledger = ledger_of(*tried(0, who=BAD), *finished, *tried(1, 2, who=BAD))
    assert not ledger.follows(BAD, is_evaluation=False)
    more = ledger_of(*ledger.outcomes, *tried(3, who=BAD))
    assert more.follows(BAD, is_evaluation=False)
    # (2/12)^4 = 7.7e-4, (2/12)^5 = 1.3e-4, (2/12)^6 = 2.1e-5: the failure also counts among the
    # others'.
    for number in (4, 5):
        ledger = ledger_of(*tried(0, who=BAD), *finished, *tried(200, who=GOOD))
        ledger = ledger_of(*ledger.outcomes, *tried(*range(1, number + 1), who=BAD))
        assert ledger.follows(BAD, is_evaluation=False) == (number == 5)


@pytest.mark.parametrize("kind", ["making", "checkpoint", "message"])
def test_what_no_numbers_can_cause_is_held_against_no_policy_but_lets_others_go_first(
    kind: str,
) -> None:
    row = [outcome(number, kind, BAD) for number in range(6)]
    finished = [outcome(100 + number, FINISHED, GOOD) for number in range(20)]
    ledger = ledger_of(row[0], *finished, *row[1:])
    assert not ledger.follows(BAD, is_evaluation=False)
    assert ledger.waits(BAD, is_evaluation=False)
    # Other policies' failures of such a kind do not count as chance failures.
    ledger = ledger_of(outcome(0, "code", BAD), *finished)
    for number in range(1, 4):
        ledger.add(outcome(200 + number, kind, GOOD))
        ledger.add(outcome(number, "code", BAD))
    assert ledger.is_alone(BAD, is_evaluation=False)
    # (1/22)^4 = 4.3e-6; with k = 3 of 23 it would be (4/25)^4 = 6.6e-4
    assert ledger.follows(BAD, is_evaluation=False)


@pytest.mark.parametrize("kind", ["place", "stopped"])
def test_what_only_a_learner_can_be_blamed_for_stays_its_charge(kind: str) -> None:
    first = outcome(1, kind, BAD, charge=True)
    ledger = ledger_of(first, outcome(1, "error", BAD, place="slot 1"))
    assert ledger.charges_of(first.learner) == [first]
    assert len(ledger.in_a_row(BAD, is_evaluation=False)) == 1


def test_a_new_generation_and_a_finished_assignment_begin_anew() -> None:
    ledger = ledger_of(*(outcome(number, "error", BAD) for number in range(9)))
    assert len(ledger.in_a_row(BAD, is_evaluation=False)) == 9
    assert ledger.in_a_row(Entrant("p/p000#1"), is_evaluation=False) == []
    assert ledger.in_a_row(BAD, is_evaluation=True) == []
    ledger.add(outcome(10, FINISHED, BAD))
    assert ledger.in_a_row(BAD, is_evaluation=False) == []
    assert ledger.outcomes == []


def test_a_charge_is_cleared_where_another_place_fails_alike() -> None:
    first = outcome(1, "error", BAD, charge=True)
    ledger = ledger_of(first)
    assert ledger.charges_of(first.learner) == [first]
    assert ledger.in_a_row(BAD, is_evaluation=False) == []
    ledger.add(outcome(1, "error", BAD, place="slot 1"))
    assert ledger.charges_of(first.learner) == []
    assert len(ledger.in_a_row(BAD, is_evaluation=False)) == 2


def test_a_learner_that_works_again_has_no_charges() -> None:
    first = outcome(1, "error", BAD, charge=True)
    ledger = ledger_of(first, outcome(2, "error", GOOD, charge=True))
    assert len(ledger.charges_of(first.learner)) == 2
    assert not ledger.has_finished_elsewhere(first)
    ledger.add(outcome(3, FINISHED, GOOD, place="slot 1"))
    assert ledger.has_finished_elsewhere(first)
    ledger.add(outcome(4, FINISHED, GOOD))
    assert ledger.charges_of(first.learner) == []
    assert sum(ledger.recent) == 2, "they count once it works again"


def test_three_failures_of_any_kind_in_a_row_are_a_stall() -> None:
    ledger = ledger_of(outcome(1, "error", BAD), outcome(2, "lost"))
    assert ledger.stall() == []
    # Failures of a machine elsewhere, or of a stop, say nothing about the run.
    ledger.add(outcome(3, "place", outside=True))
    ledger.add(outcome(4, "stopped"))
    assert ledger.stall() == []
    ledger.add(outcome(5, "making"))
    assert [one.assignment_id for one in ledger.stall()] == [1, 2, 5]
    ledger.add(outcome(6, FINISHED, GOOD))
    assert ledger.stall() == []


def test_a_failed_policy_lets_others_train_as_often_as_it_failed() -> None:
    ledger = ledger_of(outcome(1, "error", BAD), outcome(2, "error", BAD))
    for number in (3, 4):
        assert ledger.waits(BAD, is_evaluation=False)
        assert not ledger.waits(GOOD, is_evaluation=False)
        ledger.add(outcome(number, FINISHED, GOOD))
    assert not ledger.waits(BAD, is_evaluation=False)


def test_evaluations_that_fail_become_rarer() -> None:
    ledger = Ledger()
    number = 0
    for due in (1, 2, 4, 8, 16, 32, 32):
        ledger.add(outcome(number := number + 1, "code", evaluation=True))
        for _ in range(due):
            assert ledger.evaluation_waits
            ledger.add(outcome(number := number + 1, FINISHED, GOOD))
        assert not ledger.evaluation_waits
    ledger.add(outcome(number + 1, FINISHED, evaluation=True))
    assert (ledger.failed_evaluations, ledger.evaluation_waits) == (0, False)


def test_a_donor_counts_once_it_has_finished_since_the_failures_began() -> None:
    donor, bad = "p/p001", "p/p000"
    ledger = ledger_of(outcome(1, FINISHED, GOOD), outcome(2, "error", BAD))
    ledger.add(outcome(3, "error", BAD))
    ledger.note_quarantine(BAD)
    assert not ledger.has_recovered(donor, since=bad)  # type: ignore[arg-type]
    ledger.add(outcome(4, FINISHED, GOOD))
    assert ledger.has_recovered(donor, since=bad)  # type: ignore[arg-type]


def test_one_that_finished_amid_the_failures_has_recovered() -> None:
    ledger = ledger_of(
        outcome(1, "error", BAD), outcome(2, FINISHED, GOOD), outcome(3, "error", BAD)
    )
    ledger.note_quarantine(BAD)
    assert ledger.has_recovered("p/p001", since="p/p000")  # type: ignore[arg-type]


OUTCOMES = st.lists(
    st.builds(
        lambda number, kind, who, place, evaluation, charge: outcome(
            number,
            kind,
            who,
            place=place,
            evaluation=evaluation,
            charge=charge and kind != FINISHED,
        ),
        st.integers(1, 5),
        st.sampled_from([FINISHED, FINISHED, "error", "lost", "place"]),
        st.sampled_from([BAD, GOOD, Entrant("p/p002#0")]),
        st.sampled_from(["slot 0", "slot 1"]),
        st.booleans(),
        st.booleans(),
    ),
    max_size=60,
)


@given(OUTCOMES)
def test_what_is_forgotten_changes_no_answer(outcomes: list[Outcome]) -> None:
    """Against a ledger that forgets nothing: the rows in a row, charges, stalls."""
    ledger, whole = ledger_of(*outcomes), Ledger()
    for one in outcomes:
        whole.outcomes.append(one)
        if one.is_failure and not one.is_charge:
            whole._clear_charges(one)
    for name in (BAD, GOOD):
        for evaluation in (False, True):
            assert ledger.in_a_row(name, is_evaluation=evaluation) == whole.in_a_row(
                name, is_evaluation=evaluation
            )
            assert ledger.follows(name, is_evaluation=evaluation) == whole.follows(
                name, is_evaluation=evaluation
            )
            assert ledger.waits(name, is_evaluation=evaluation) == whole.waits(
                name, is_evaluation=evaluation
            )
    for place in ("slot 0", "slot 1"):
        learner = LearnerId(f"learner at {place}")
        assert ledger.charges_of(learner) == whole.charges_of(learner)
    assert ledger.stall() == whole.stall()
    assert len(ledger.outcomes) <= MAX_OUTCOMES
