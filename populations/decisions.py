"""Decisions of PBT about a policy that is ready, with the evidence for the event log.

Tests: `tests/populations/pbt/test_exploit.py`, `tests/populations/pbt/test_pairwise.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from arena.types import PolicyId


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Comparison of a policy with one other policy.

    Attributes:
        rival: The other policy.
        measure: ``rating`` (Elo), ``return`` (mean per match) or ``score`` (points per match).
        difference: Lead of the rival, in that measure.
        deviation: Standard deviation of the difference.
        probability_better: Probability that the rival is better, from ratings; None for tests on
            matches.
        win_rate: Predicted win rate of the policy against the rival; None if it was not needed.
        statistic: Test statistic, t or z; None without a test.
        degrees_of_freedom: Degrees of freedom of t (Welch-Satterthwaite); None without t.
        p_value: Two-sided p-value; None without a test.
    """

    rival: PolicyId
    measure: Literal["rating", "return", "score"]
    difference: float
    deviation: float
    probability_better: float | None = None
    win_rate: float | None = None
    statistic: float | None = None
    degrees_of_freedom: float | None = None
    p_value: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Numbers behind a decision, for the event log.

    Attributes:
        rank: Rank by rating, 1 is best; None if the policy is not ranked.
        num_ranked: Policies with a rating and enough matches.
        num_selected: Size of the bottom and of the top; 0 where a rule compares with one rival.
        rating: Rating in Elo; None if unrated.
        num_matches: Evaluation matches since the policy's generation began.
        deviation: Standard deviation of the rating, Elo.
        skill_deviation: Standard deviation of skill among the ranked beyond noise, Elo. None if
            nothing was compared.
        comparison: Comparison with the donor, or with the rival that did not become the donor; None
            if the policy was compared with no single rival.
    """

    rank: int | None
    num_ranked: int
    num_selected: int
    rating: float | None
    num_matches: int
    deviation: float = 0.0
    skill_deviation: float | None = None
    comparison: Comparison | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotReady:
    """Decision to wait, because too little is known; the policy stays ready for the next check."""

    reason: str
    evidence: Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Decision that the policy stays unchanged until it is ready again."""

    reason: str
    evidence: Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class ExploreOwn:
    """Decision that the policy keeps its weights and explores its hyperparameters."""

    reason: str
    evidence: Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class ExploitDonor:
    """Decision that the policy takes the donor's weights, optimizer, normalizers and
    hyperparameters.

    Attributes:
        donor: Donor; never the policy itself.
        explore: Whether the hyperparameters are explored afterwards (not for the reference).
        donor_rank: Rank of the donor.
        donor_rating: Rating of the donor in Elo.
        gap: Elo by which the donor is better.
        gap_deviation: Standard deviation of that difference.
        probability_better: Probability that the donor is better, from these two.
        num_donors: Number of policies that passed the same test; the donor was drawn from them.
        evidence: Evidence about the policy.
    """

    donor: PolicyId
    explore: bool
    donor_rank: int
    donor_rating: float
    gap: float
    gap_deviation: float
    # Unlike in `Comparison`, the probability is never None, as donors are always compared by
    # ratings, too.
    probability_better: float
    num_donors: int
    evidence: Evidence


Decision = NotReady | Keep | ExploreOwn | ExploitDonor
