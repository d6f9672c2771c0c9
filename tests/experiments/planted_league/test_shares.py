"""Whole leagues on learners that differ: budgets and evaluation follow their speeds."""

from __future__ import annotations

import pytest

from experiments.planted_league.shares import Figures, Task, measure

SLOW, QUICK = 0, 1
"""Slots of the learner that trains slowly, and of the one whose matches are quick."""

TARGET_S = 3.0


@pytest.fixture(scope="module")
def unequal() -> Figures:
    return measure(Task(num_learners=4, num_policies=8, speed="demo", slots="unequal", seed=0))


@pytest.mark.slow
def test_assignments_take_their_time_on_slow_and_fast_learners(unequal: Figures) -> None:
    assert len(unequal.training_s) == 4
    for usual_s, longest_s in unequal.training_s:
        assert usual_s == pytest.approx(TARGET_S, rel=0.1)
        assert longest_s <= 1.1 * TARGET_S


@pytest.mark.slow
def test_evaluation_has_its_share_and_goes_where_it_costs_least(unequal: Figures) -> None:
    assert unequal.of_asked == pytest.approx(1.0, abs=0.02)
    evaluations = unequal.evaluations
    assert evaluations[QUICK] > 1.5 * sum(evaluations) / len(evaluations)
    # Over three seeds .76 to .90 of them.
    assert evaluations[SLOW] + evaluations[QUICK] > 0.7 * sum(evaluations)


@pytest.mark.slow
def test_equal_learners_evaluate_alike() -> None:
    equal = measure(Task(num_learners=4, num_policies=8, speed="demo", seed=0))
    assert equal.of_asked == pytest.approx(1.0, abs=0.02)
    assert max(equal.evaluations) < 1.5 * min(equal.evaluations)


@pytest.mark.slow
def test_no_policy_stays_behind_with_a_slow_learner_that_is_its_own() -> None:
    # As many learners as policies: the slow one's policy is free only until it asks again. All
    # others waited for it at the end: idle .69.
    found = measure(Task(num_learners=8, num_policies=8, speed="slow", slots="unequal", seed=0))
    assert found.idle < 0.25
    assert found.of_asked == pytest.approx(1.0, abs=0.02)
