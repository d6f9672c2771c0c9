from __future__ import annotations

from collections import defaultdict

import pytest

from populations.errors import RunFailed
from tools.bench.launched import Commits, committed_rate


def commits(*entries: tuple[float, str, int]) -> Commits:
    found = defaultdict(list)
    for time_s, learner, agent_steps in entries:
        found[learner].append((time_s, agent_steps))
    return found


def test_what_was_done_before_the_first_commit_of_a_learner_does_not_count() -> None:
    found = commits((3.0, "a", 999), (4.0, "b", 999), (5.0, "a", 200), (8.0, "b", 200))
    # a: 200 steps in 2 s, b: 200 in 4 s: 400 in 6 learner seconds, two learners at a time.
    assert committed_rate(found, num_learners=2) == pytest.approx(2 * 400 / 6)


def test_a_learner_that_was_replaced_is_no_third_one() -> None:
    found = commits(
        (0.0, "a", 100), (10.0, "a", 100), (0.0, "b", 100), (5.0, "b", 50), (6.0, "c", 50),
        (11.0, "c", 50),
    )  # fmt: skip
    assert committed_rate(found, num_learners=2) == pytest.approx(2 * 200 / 20)


def test_a_learner_with_one_commit_says_nothing() -> None:
    found = commits((0.0, "a", 100), (1.0, "b", 100), (2.0, "a", 100))
    assert committed_rate(found, num_learners=1) == pytest.approx(50.0)


@pytest.mark.parametrize("found", [{}, commits((1.0, "a", 100), (2.0, "b", 100))])
def test_a_run_that_is_too_short_says_so(found: Commits) -> None:
    with pytest.raises(RunFailed, match=r"too short: .* --run-seconds"):
        committed_rate(found, num_learners=2)
