"""Quality scores: the softmax and the update, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from populations.matchmaking.drawing import GhostMemory
from populations.matchmaking.quality import MAX_SPREAD, QualityRule, lowered_quality
from tests.populations.matchmaking.toy_league import ghost, probabilities, request


def test_quality_is_a_softmax() -> None:
    asked = request(ghosts=[ghost(n, quality=q) for n, q in enumerate((0.0, -math.log(3), 0.0))])
    assert probabilities(QualityRule(), asked) == pytest.approx([3 / 7, 1 / 7, 3 / 7])


def test_a_beaten_ghost_loses_quality_by_hand() -> None:
    # p = 1/4 of four alike: one win costs eta / (4 * 1/4) = eta.
    assert lowered_quality(np.zeros(4), 1, num_wins=1, quality_step=0.01) == pytest.approx(-0.01)
    # A ghost with p = 1/10 of three (weights 1, 8, 1) loses eta / (3 / 10).
    qualities = np.log([1.0, 8.0, 1.0])
    after = lowered_quality(qualities, 2, num_wins=1, quality_step=0.03)
    assert after == pytest.approx(-0.1)
    assert lowered_quality(qualities, 2, num_wins=0, quality_step=0.03) == 0.0


def test_many_wins_are_one_after_the_other() -> None:
    qualities = np.array([0.3, -0.2, 0.0])
    one_by_one = qualities.copy()
    for _ in range(7):
        weights = np.exp(one_by_one)
        one_by_one[0] -= 0.05 * weights.sum() / (3 * weights[0])
    found = lowered_quality(qualities, 0, num_wins=7, quality_step=0.05)
    assert found == pytest.approx(one_by_one[0], rel=1e-12)


@settings(deadline=None)
@given(
    qualities=st.lists(st.floats(-50.0, 50.0), min_size=1, max_size=20),
    num_wins=st.integers(0, 10_000),
    step=st.floats(1e-4, 1.0),
)
def test_quality_never_rises_and_stays_finite(
    qualities: list[float], num_wins: int, step: float
) -> None:
    before = np.array(qualities)
    after = lowered_quality(before, 0, num_wins=num_wins, quality_step=step)
    assert math.isfinite(after)
    assert after <= before[0] + 1e-9
    assert after >= min(before[0], before.max() - MAX_SPREAD) - 1e-9


def test_the_rule_keeps_one_number_for_each_ghost() -> None:
    rule = QualityRule(quality_step=0.03)
    assert isinstance(rule, GhostMemory)
    assert rule.number_of_new(np.zeros(0)) == 0.0
    assert rule.number_of_new(np.array([-0.5, -0.2, -3.0])) == -0.2
    qualities = np.log([1.0, 8.0, 1.0])
    assert rule.number_after(qualities, 2, num_wins=1) == pytest.approx(-0.1)


def test_a_quality_far_below_the_limit_stays() -> None:
    qualities = np.array([0.0, -800.0])
    assert lowered_quality(qualities, 1, num_wins=1, quality_step=0.01) == -800.0
