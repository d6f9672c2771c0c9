"""Selection: the part common to all kinds of exploitation, which differ in their `Rule`.

The common part decides which members are ranked, never mutates the reference, lets policies without
a donor explore, computes the probability that a rival is better, and draws a donor.

The best of many noisy ratings owe part of their lead to luck. So the probability that a rival is
better is computed by empirical Bayes (Efron and Morris, "Stein's estimation rule and its
competitors", 1973): skills have variance tau^2 around their mean, the ratings' variance minus that
of the noise. For a difference d of ratings with deviation s, the probability is
Phi(d / s sqrt(k)), with k = 2 tau^2 / (2 tau^2 + s^2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import numpy as np

from arena.types import PolicyId
from populations.core import CommonScores, Member, RatingDifference
from populations.decisions import (
    Comparison,
    Decision,
    Evidence,
    ExploitDonor,
    ExploreOwn,
    Keep,
    NotReady,
)
from populations.pbt.ranking import Ranking
from populations.ratings.model import probability_positive

MAX_PAIRS = 64
"""Maximum number of pairs from which the noise of ratings is estimated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """Input of a rule: the policy to decide about, and the members to compare it with.

    Attributes:
        own: Member that the decision is about.
        ranked: All ranked members, two or more, ``own`` included, best rating first. Their ratings
            are finite.
        ranking: The same members in other orders.
        difference: Rating differences of the last fit.
        common: Scores against common opponents; None in cooperation.
        rng: Generator for rules that draw a rival.
        skill_variance: tau^2 of the module's docstring, Elo squared; infinite where it is too large
            for a float.
    """

    own: Member
    ranked: tuple[Member, ...]
    ranking: Ranking
    difference: RatingDifference
    common: CommonScores | None
    rng: np.random.Generator
    skill_variance: float

    def draw_rival(self) -> Member:
        """Draw one of the other ranked members, uniformly."""
        others = [member for member in self.ranked if member.policy != self.own.policy]
        return others[int(self.rng.integers(len(others)))]

    def compare(self, rival: Member) -> Comparison | None:
        """Compare a rival with ``own`` by ratings; None if their difference is unknown."""
        known = _known_difference(self.difference, rival, self.own)
        if known is None:
            return None
        gap, deviation = known
        share = _shrinkage(deviation, skill_variance=self.skill_variance)
        return Comparison(
            rival=rival.policy,
            measure="rating",
            difference=gap,
            deviation=deviation,
            # The difference has posterior mean k d and variance k s^2: P = Phi(k d / (sqrt(k) s)).
            probability_better=probability_positive(gap * math.sqrt(share), deviation),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Answer of a rule.

    Attributes:
        reason: Reason for the event, used if there is no donor.
        donors: Comparisons with the members that may be copied.
        is_ahead: Whether the policy is among the best, so that it stays unchanged.
        comparison: Comparison with the rival, if the rival is no donor.
        num_selected: Size of the bottom and of the top group; 0 for rules without groups.
    """

    reason: str
    donors: tuple[Comparison, ...] = ()
    is_ahead: bool = False
    comparison: Comparison | None = None
    num_selected: int = 0


@runtime_checkable
class Rule(Protocol):
    """Rule that names donors: the only difference between kinds of exploitation. Keeps no state."""

    def select_donors(self, contest: Contest) -> Verdict:
        """Name the donors of ``contest.own``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Implementation of `populations.core.Exploit`: a rule applied to the ranked members.

    A policy without a donor that is not ahead keeps its weights and explores its hyperparameters.
    The reference member is never mutated: when it copies a donor, it takes the weights and
    hyperparameters unchanged.

    Attributes:
        rule: Rule that names the donors.
        min_matches: Minimum number of evaluation matches in a policy's generation; a policy with
            fewer is not ranked, so it neither copies nor donates.
        mutate_others: Whether policies without a donor explore.
    """

    rule: Rule
    min_matches: int = 100
    mutate_others: bool = True
    _rankings: dict[PolicyId, Ranking] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Cached rankings, one for each group of members, by the group's first policy."""

    def decide(
        self,
        policy: PolicyId,
        *,
        members: Sequence[Member],
        difference: RatingDifference,
        common: CommonScores | None = None,
        rng: np.random.Generator,
    ) -> Decision:
        """Decide about one policy; see `populations.core.Exploit`.

        Raises:
            ValueError: If the policy is not among the members.
        """
        evidence = evidence_about(policy, members)
        ranking = self._ranking(members)
        # Evidence and draws use the order by ratings alone, without deviations.
        ranked = ranking.order()
        evidence = replace(evidence, num_ranked=len(ranked))
        rank = next((rank for rank, member in enumerate(ranked) if member.policy == policy), None)
        # A policy without a rank is not judged: it trains on, and the decision is repeated later.
        if rank is None:
            return NotReady(reason=self._why_unranked(evidence), evidence=evidence)
        if len(ranked) < 2:
            return NotReady(reason="no other policy is ranked", evidence=evidence)
        skill_variance = estimate_skill_variance(ranked, difference=difference)
        contest = Contest(
            own=ranked[rank],
            ranked=ranked,
            ranking=ranking,
            difference=difference,
            common=common,
            rng=rng,
            skill_variance=skill_variance,
        )
        verdict = self.rule.select_donors(contest)
        evidence = replace(
            evidence,
            rank=rank + 1,
            num_selected=verdict.num_selected,
            skill_deviation=math.sqrt(skill_variance) if skill_variance < math.inf else None,
            comparison=verdict.comparison,
        )
        if verdict.donors:
            return _copy(contest, verdict.donors, evidence=evidence)
        # The best neither copy nor explore.
        if verdict.is_ahead:
            return Keep(reason=verdict.reason, evidence=evidence)
        return self._stay(contest.own, reason=verdict.reason, evidence=evidence)

    def _ranking(self, members: Sequence[Member]) -> Ranking:
        first = members[0].policy
        ranking = self._rankings.get(first)
        if ranking is None:
            ranking = self._rankings[first] = Ranking(min_matches=self.min_matches)
        # The ranking must be that of the members just given, so it is updated before each use.
        ranking.update(members)
        return ranking

    def _why_unranked(self, evidence: Evidence) -> str:
        if evidence.rating is None:
            return "no finite rating"
        return f"fewer than {self.min_matches} evaluation matches"

    def _stay(self, member: Member, *, reason: str, evidence: Evidence) -> Decision:
        if member.is_reference:
            return Keep(reason=f"{reason}; the reference is never mutated", evidence=evidence)
        if not self.mutate_others:
            return Keep(reason=f"{reason}; pbt.mutate_others is false", evidence=evidence)
        return ExploreOwn(reason=reason, evidence=evidence)


def estimate_skill_variance(ranked: Sequence[Member], *, difference: RatingDifference) -> float:
    """Return tau^2: the ratings' variance minus that of their noise; Elo squared, at least 0.

    The noise is half the mean variance of differences, so an error common to all ratings (their
    distance from the anchor) does not count. Each policy, or at most 64 at equal distances in the
    ranking, is compared with the policy half the ranking away.

    Args:
        ranked: Two or more members with finite ratings, best first.
        difference: Function from two policies to their rating difference.
    """
    ratings = [member.rating for member in ranked if member.rating is not None]
    mean = sum(ratings) / len(ratings)
    total = sum((rating - mean) * (rating - mean) for rating in ratings) / (len(ratings) - 1)
    if not math.isfinite(total):
        return math.inf
    # A negative i - half counts from the end of the ranking, which is intended.
    half, stride = len(ranked) // 2, -(-len(ranked) // MAX_PAIRS)
    noises = [
        # Var(i - j) / 2 is the mean noise variance of the two; errors common to both cancel.
        known[1] * known[1] / 2.0
        for i in range(0, len(ranked), stride)
        if (known := _known_difference(difference, ranked[i], ranked[i - half])) is not None
    ]
    # If all policies are about equal, the estimated noise can exceed the variance of ratings.
    return max(total - sum(noises) / len(noises), 0.0) if noises else 0.0


def _known_difference(
    difference: RatingDifference, first: Member, second: Member
) -> tuple[float, float] | None:
    known = difference(first.policy, second.policy)
    return known if known is not None and all(math.isfinite(number) for number in known) else None


def _shrinkage(deviation: float, *, skill_variance: float) -> float:
    """Return the k of the module's docstring, in [0, 1]; 1 if the difference is exact."""
    noise = deviation * deviation / 2.0  # 0 also where the square underflows
    if noise == 0.0 or skill_variance == math.inf:
        return 1.0
    return skill_variance / (skill_variance + noise)


def evidence_about(policy: PolicyId, members: Sequence[Member]) -> Evidence:
    """Return the evidence about a policy before any ranking: its rating and matches.

    Raises:
        ValueError: If the policy is not among the members.
    """
    member = next((member for member in members if member.policy == policy), None)
    if member is None:
        raise ValueError(f"{policy!r} is not among the members")
    rating = member.rating
    return Evidence(
        rank=None,
        num_ranked=0,
        num_selected=0,
        rating=rating if rating is not None and math.isfinite(rating) else None,
        num_matches=member.num_matches,
        deviation=member.deviation if math.isfinite(member.deviation) else 0.0,
    )


def _copy(contest: Contest, donors: Sequence[Comparison], *, evidence: Evidence) -> ExploitDonor:
    """Draw one of the donors; the decision reports the difference in Elo for every rule."""
    chosen = donors[int(contest.rng.integers(len(donors)))]
    rank, donor = next(
        (rank, member)
        for rank, member in enumerate(contest.ranked)
        if member.policy == chosen.rival
    )
    # Every rule has compared its donors by ratings, so the difference is known.
    gap = contest.compare(donor)
    assert gap is not None
    assert gap.probability_better is not None
    assert donor.rating is not None
    # A policy never copies itself: rivals are other members, and `truncation` names no donor for a
    # policy among the best.
    assert donor.policy != contest.own.policy
    return ExploitDonor(
        donor=donor.policy,
        explore=not contest.own.is_reference,
        donor_rank=rank + 1,
        donor_rating=donor.rating,
        gap=gap.difference,
        gap_deviation=gap.deviation,
        probability_better=gap.probability_better,
        num_donors=len(donors),
        evidence=replace(evidence, comparison=chosen),
    )
