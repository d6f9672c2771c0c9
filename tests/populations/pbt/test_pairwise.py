"""The kinds of exploitation that compare a policy with one random other."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.types import PolicyId
from populations.core import CommonScores, Member, Score
from populations.decisions import Decision, ExploitDonor, ExploreOwn, Keep, NotReady
from populations.pbt.exploit import BinaryTournament, PredictedWin, SignificantlyBetter
from populations.pbt.selection import Rule, Selection
from tests.populations.pbt.histories import differences

A, B = PolicyId("player/p000"), PolicyId("player/p001")
RULES: dict[str, Rule] = {
    "binary_tournament": BinaryTournament(),
    "welch": SignificantlyBetter(),
    "predicted_win": PredictedWin(),
}


def pair(own: float, rival: float) -> list[Member]:
    return [
        Member(policy=policy, index=index, rating=rating, num_matches=500)
        for index, (policy, rating) in enumerate(((A, own), (B, rival)))
    ]


def decide(
    rule: Rule,
    members: list[Member],
    *,
    policy: PolicyId = A,
    deviation: float = 0.0,
    common: CommonScores | None = None,
    seed: int = 0,
    mutate_others: bool = True,
) -> Decision:
    selection = Selection(rule=rule, min_matches=100, mutate_others=mutate_others)
    return selection.decide(
        policy,
        members=members,
        difference=differences(members, deviation=deviation),
        common=common,
        rng=np.random.default_rng(seed),
    )


def test_a_tournament_copies_who_is_ahead_by_much_and_surely() -> None:
    rule = BinaryTournament(min_rating_gap=30.0, confidence=0.9)
    decision = decide(rule, pair(100, 130))
    assert isinstance(decision, ExploitDonor)
    assert (decision.donor, decision.gap, decision.num_donors) == (B, 30.0, 1)
    assert decision.probability_better == 1.0
    assert decision.evidence.comparison is not None
    assert decision.evidence.comparison.rival == B
    assert decision.evidence.num_selected == 0
    small = decide(rule, pair(100, 129))
    assert isinstance(small, ExploreOwn)
    assert small.evidence.comparison is not None
    assert small.evidence.comparison.difference == 29.0
    # As with truncation, 100 points between two need a deviation of at most 61.518.
    assert isinstance(decide(rule, pair(0, 100), deviation=61.5), ExploitDonor)
    assert isinstance(decide(rule, pair(0, 100), deviation=61.6), ExploreOwn)
    ahead = decide(rule, pair(130, 100))
    assert isinstance(ahead, Keep)
    assert ahead.reason == "not behind its rival"


def test_every_other_is_a_rival_as_often() -> None:
    members = [
        Member(policy=PolicyId(f"p{i}"), index=i, rating=rating, num_matches=500)
        for i, rating in enumerate((0.0, 100.0, 200.0, 300.0))
    ]
    donors: Counter[str] = Counter()
    for seed in range(600):
        decision = decide(BinaryTournament(), members, policy=PolicyId("p0"), seed=seed)
        assert isinstance(decision, ExploitDonor)
        donors[decision.donor] += 1
    assert donors.keys() == {"p1", "p2", "p3"}
    assert all(150 < count < 250 for count in donors.values())  # standard deviation 11.5


def with_returns(mean: float, variance: float, *, num_returns: int = 10) -> list[Member]:
    own, rival = pair(100, 200)
    return [
        replace(own, num_returns=10, return_mean=0.0, return_variance=4.0),
        replace(rival, num_returns=num_returns, return_mean=mean, return_variance=variance),
    ]


def test_in_cooperation_returns_are_compared() -> None:
    # v = 0.4 + 0.4: t = 2 / sqrt(0.8) = 2.2360680 with 18 degrees of freedom: p = 0.038250
    decision = decide(SignificantlyBetter(), with_returns(2.0, 4.0))
    assert isinstance(decision, ExploitDonor)
    comparison = decision.evidence.comparison
    assert comparison is not None
    assert (comparison.measure, comparison.difference) == ("return", 2.0)
    assert comparison.statistic == pytest.approx(2.2360680)
    assert comparison.degrees_of_freedom == pytest.approx(18.0)
    assert comparison.p_value == pytest.approx(0.038250, abs=1e-6)
    assert decision.gap == 100.0  # in Elo, for the log
    unsure = decide(SignificantlyBetter(), with_returns(1.8, 4.0))  # p = 0.0592
    assert isinstance(unsure, ExploreOwn)
    assert isinstance(
        decide(SignificantlyBetter(significance=0.06), with_returns(1.8, 4.0)), ExploitDonor
    )
    assert isinstance(decide(SignificantlyBetter(), with_returns(-9.0, 4.0)), Keep)
    few = decide(SignificantlyBetter(), with_returns(2.0, 4.0, num_returns=1))
    assert isinstance(few, ExploreOwn)
    assert "too few matches" in few.reason


def scores(own: float, rival: float, *, matches: float = 100) -> CommonScores:
    by_policy = {A: Score(points=own, matches=matches), B: Score(points=rival, matches=matches)}
    return lambda first, second: (by_policy[first], by_policy[second])


def test_in_competition_scores_against_common_opponents_are_compared() -> None:
    # p = 0.57: z = 0.14 / sqrt(0.57 * 0.43 * 0.02) = 0.14 / 0.0700143 = 1.99959, p = 0.0455
    decision = decide(SignificantlyBetter(), pair(100, 200), common=scores(50, 64))
    assert isinstance(decision, ExploitDonor)
    comparison = decision.evidence.comparison
    assert comparison is not None
    assert (comparison.measure, comparison.degrees_of_freedom) == ("score", None)
    assert comparison.statistic == pytest.approx(1.99959, abs=1e-5)
    assert comparison.p_value == pytest.approx(0.04554, abs=1e-5)
    # z = 0.13 / 0.0700893 = 1.85478, p = 0.0636
    assert isinstance(
        decide(SignificantlyBetter(), pair(100, 200), common=scores(50, 63)), ExploreOwn
    )
    assert isinstance(decide(SignificantlyBetter(), pair(100, 200), common=scores(64, 50)), Keep)


def test_a_handful_of_matches_proves_nothing() -> None:
    # Two wins of two against none of two give z = 2, p = 0.0455, which may be luck.
    few = decide(SignificantlyBetter(), pair(100, 200), common=scores(0, 2, matches=2))
    assert isinstance(few, ExploreOwn)
    assert "too few matches" in few.reason
    assert isinstance(
        decide(SignificantlyBetter(), pair(1, 2), common=lambda first, second: None), ExploreOwn
    )


def test_a_predicted_win_rate_below_the_threshold_copies() -> None:
    # 1 / (1 + 10^(gap / 400)) is 0.3 at 147.19 points.
    decision = decide(PredictedWin(), pair(0, 148))
    assert isinstance(decision, ExploitDonor)
    assert decision.evidence.comparison is not None
    assert decision.evidence.comparison.win_rate == pytest.approx(0.29903, abs=1e-5)
    near = decide(PredictedWin(), pair(0, 147))
    assert isinstance(near, ExploreOwn)
    assert near.evidence.comparison is not None
    assert near.evidence.comparison.win_rate == pytest.approx(0.30023, abs=1e-5)
    assert isinstance(decide(PredictedWin(), pair(0, -148)), Keep)
    assert isinstance(decide(PredictedWin(), pair(0, 148), deviation=100.0), ExploreOwn)
    assert isinstance(
        decide(PredictedWin(confidence=0.0), pair(0, 148), deviation=100.0), ExploitDonor
    )


@pytest.mark.parametrize("kind", RULES)
def test_what_holds_for_all_kinds(kind: str) -> None:
    rule = RULES[kind]
    far, common = pair(0, 500), scores(10, 90)
    reference = [replace(far[0], is_reference=True), far[1]]
    copied = decide(rule, reference, common=common)
    assert isinstance(copied, ExploitDonor)
    assert not copied.explore
    assert isinstance(decide(rule, far, common=common, mutate_others=False), ExploitDonor)
    close, even = pair(0, 5), scores(50, 51)
    assert isinstance(decide(rule, close, common=even), ExploreOwn)
    assert isinstance(decide(rule, close, common=even, mutate_others=False), Keep)
    kept = decide(rule, [replace(close[0], is_reference=True), close[1]], common=even)
    assert isinstance(kept, Keep)
    assert "the reference is never mutated" in kept.reason
    for unready in (
        [replace(far[0], num_matches=99), far[1]],
        [far[0], replace(far[1], num_matches=99)],
        [replace(far[0], rating=None), far[1]],
        [far[0], replace(far[1], rating=float("nan"))],
    ):
        assert isinstance(decide(rule, unready, common=common), NotReady)


NUMBERS = st.floats(allow_nan=True, allow_infinity=True)


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(sorted(RULES)),
    st.lists(
        st.tuples(NUMBERS, st.integers(0, 300), st.floats(0, 1), st.integers(0, 300)),
        min_size=1,
        max_size=6,
    ),
    st.floats(0.0, 1e3),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_nobody_copies_itself_and_all_numbers_are_finite(
    kind: str,
    drawn: list[tuple[float, int, float, int]],
    deviation: float,
    is_cooperation: bool,
    seed: int,
) -> None:
    members = [
        Member(
            policy=PolicyId(f"p{i}"),
            index=i,
            rating=rating,
            num_matches=matches,
            deviation=deviation,
            num_returns=returns,
            return_mean=share,
            return_variance=share,
        )
        for i, (rating, matches, share, returns) in enumerate(drawn)
    ]
    by_id = {member.policy: member for member in members}

    def common(first: PolicyId, second: PolicyId) -> tuple[Score, Score] | None:
        a, b = by_id[first], by_id[second]
        if min(a.num_returns, b.num_returns) == 0:
            return None
        return (
            Score(points=a.return_mean * a.num_returns, matches=a.num_returns),
            Score(points=b.return_mean * b.num_returns, matches=b.num_returns),
        )

    for member in members:
        decision = decide(
            RULES[kind],
            members,
            policy=member.policy,
            deviation=deviation,
            common=None if is_cooperation else common,
            seed=seed,
        )
        if isinstance(decision, ExploitDonor):
            assert decision.donor != member.policy
            assert by_id[decision.donor].num_matches >= 100
            assert np.isfinite([decision.gap, decision.donor_rating]).all()
            assert 0.0 <= decision.probability_better <= 1.0
        comparison = decision.evidence.comparison
        if comparison is not None:
            assert comparison.rival != member.policy
            assert np.isfinite(comparison.difference)
            assert comparison.p_value is None or 0.0 <= comparison.p_value <= 1.0
