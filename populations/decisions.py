"""What PBT decides about a policy that is ready, with the numbers behind it for the event log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from arena.types import PolicyId


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The numbers of comparing a policy with one other.

    Attributes:
        rival: The other policy.
        measure: ``rating`` (Elo), ``return`` (mean per match) or ``score`` (points per match).
        difference: By how much the rival is better, in that measure.
        deviation: Standard deviation of the difference.
        probability_better: Of the rival, from ratings; None for tests on matches.
        win_rate: Predicted, of the policy against the rival; None if it was not asked for.
        statistic: Of the test: t, or z; None without a test.
        degrees_of_freedom: Of t (Welch-Satterthwaite); None without.
        p_value: Two-sided; None without a test.
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
    """The numbers behind a decision, for the event log.

    Attributes:
        rank: By rating, 1 is best; None if the policy is not ranked.
        num_ranked: Policies with a rating and enough matches.
        num_selected: So many are bottom, and so many top; 0 where a rule compares with one rival.
        rating: Elo; None if unrated.
        num_matches: Evaluation matches since the policy's generation began.
        deviation: Standard deviation of the rating, Elo.
        skill_deviation: Standard deviation of skill among the ranked, Elo: what their ratings show
            beyond noise. None if nothing was compared.
        comparison: With the donor, or with the rival that was no donor; None if it was compared
            with nobody, or nobody in particular.
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
    """Too little is known: ask again after the next evaluation. Changes nothing."""

    reason: str
    evidence: Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """The policy stays as it is until its next ready mark."""

    reason: str
    evidence: Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class ExploreOwn:
    """The policy keeps its weights; its hyperparameters are explored."""

    reason: str
    evidence: Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class ExploitDonor:
    """The policy takes over the donor's weights, optimizer, normalizers and hyperparameters.

    Attributes:
        donor: Never the policy itself.
        explore: Whether the hyperparameters are explored afterwards (not for the reference).
        donor_rank: Its rank.
        donor_rating: Elo.
        gap: Elo by which the donor is better.
        gap_deviation: Standard deviation of that difference.
        probability_better: Of the donor, from these two.
        num_donors: Policies that passed the same test; the donor was drawn from them.
        evidence: About the policy.
    """

    donor: PolicyId
    explore: bool
    donor_rank: int
    donor_rating: float
    gap: float
    gap_deviation: float
    probability_better: float
    num_donors: int
    evidence: Evidence


Decision = NotReady | Keep | ExploreOwn | ExploitDonor
