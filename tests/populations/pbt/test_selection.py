"""What all kinds of selection share, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from arena.types import PolicyId
from populations.core import Member
from populations.decisions import Comparison, ExploitDonor, ExploreOwn, Keep, NotReady
from populations.pbt.selection import (
    Contest,
    Selection,
    Verdict,
    estimate_skill_variance,
    evidence_about,
)
from tests.populations.pbt.test_exploit import decide, differences, members_of, policy_id


class Everyone:
    """A rule that names every other as a donor."""

    def select_donors(self, contest: Contest) -> Verdict:
        others = (contest.compare(member) for member in contest.ranked if member != contest.own)
        return Verdict(reason="all", donors=tuple(one for one in others if one is not None))


class Nobody:
    """A rule that names no donor."""

    def __init__(self, *, is_ahead: bool) -> None:
        self.is_ahead = is_ahead

    def select_donors(self, contest: Contest) -> Verdict:
        del contest
        return Verdict(reason="nobody", is_ahead=self.is_ahead)


def test_a_donor_is_drawn_among_those_that_the_rule_names() -> None:
    rule = Selection(rule=Everyone(), min_matches=100, mutate_others=True)
    donors = set()
    for seed in range(40):
        decision = decide(members_of(0, 100, 200), 0, rule=rule, seed=seed)
        assert isinstance(decision, ExploitDonor)
        donors.add(decision.donor)
    assert donors == {policy_id(1), policy_id(2)}


@pytest.mark.parametrize(
    ("is_ahead", "mutates", "kind"),
    [(False, True, ExploreOwn), (False, False, Keep), (True, True, Keep), (True, False, Keep)],
)
def test_a_policy_that_copies_nobody_explores_unless_it_is_ahead(
    is_ahead: bool, mutates: bool, kind: type
) -> None:
    rule = Selection(rule=Nobody(is_ahead=is_ahead), min_matches=100, mutate_others=mutates)
    assert isinstance(decide(members_of(0, 100), 0, rule=rule), kind)


def test_a_policy_with_too_few_matches_is_not_ready() -> None:
    rule = Selection(rule=Everyone(), min_matches=100, mutate_others=True)
    members = [*members_of(0, num_matches=99), *members_of(0, 100)[1:]]
    assert isinstance(decide(members, 0, rule=rule), NotReady)


def test_variance_of_skill_is_that_of_ratings_less_their_noise() -> None:
    members = members_of(-100, 0, 100)
    # 10000, the variance of the ratings; a difference of deviation 20 is 200 of each rating's.
    found = estimate_skill_variance(members, difference=differences(members, deviation=20.0))
    assert found == pytest.approx(10_000.0 - 200.0)
    loud = estimate_skill_variance(members, difference=differences(members, deviation=1e4))
    assert loud == 0.0


def test_a_comparison_shrinks_by_the_formula() -> None:
    members = members_of(0, 30)
    contest = Contest(
        own=members[0],
        ranked=tuple(members),
        ranking=None,  # type: ignore[arg-type]
        difference=differences(members, deviation=40.0),
        common=None,
        rng=np.random.default_rng(0),
        skill_variance=900.0,
    )
    found = contest.compare(members[1])
    assert isinstance(found, Comparison)
    share = 2 * 900.0 / (2 * 900.0 + 40.0**2)
    phi = 0.5 * (1.0 + math.erf(30.0 / 40.0 * math.sqrt(share) / math.sqrt(2.0)))
    assert found.probability_better == pytest.approx(phi)
    assert (found.difference, found.deviation) == (30.0, 40.0)


def test_rivals_are_the_others_alike() -> None:
    members = members_of(0, 1, 2, 3)
    contest = Contest(
        own=members[1],
        ranked=tuple(members),
        ranking=None,  # type: ignore[arg-type]
        difference=differences(members),
        common=None,
        rng=np.random.default_rng(1),
        skill_variance=1.0,
    )
    drawn = [contest.draw_rival().policy for _ in range(900)]
    assert policy_id(1) not in drawn
    assert all(abs(drawn.count(policy_id(i)) - 300) < 60 for i in (0, 2, 3))


def test_evidence_has_the_policys_own_numbers() -> None:
    members = [
        Member(policy=PolicyId("player/p000"), index=0, rating=12.0, num_matches=7, deviation=3.0)
    ]
    evidence = evidence_about(PolicyId("player/p000"), members)
    assert (evidence.rating, evidence.num_matches) == (12.0, 7)
