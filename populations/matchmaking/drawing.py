"""Drawing of opponents from a rule's weights, the part common to all rules.

A rule gives each ghost a weight; the latest get a fixed share of the opponents; then the opponents
of one assignment are drawn. Shapes: N ghosts, M latest checkpoints.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from populations.candidates import FloatArray, IntArray
from populations.core import OpponentRequest, Opponents

MIN_TOTAL = 1e-10
"""Sum of weights below which the distribution is uniform, because nothing can be inferred."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Distribution:
    """Probabilities of all possible opponents; they sum to one.

    Attributes:
        mirror: Probability of the trainee itself.
        latest: Probabilities of the request's ``latest``. float64 [M].
        ghosts: Probabilities of the request's ``ghosts``. float64 [N].
    """

    mirror: float
    latest: FloatArray
    ghosts: FloatArray


@runtime_checkable
class Rule(Protocol):
    """Rule that weighs ghosts."""

    def weights(self, request: OpponentRequest, *, rng: np.random.Generator) -> FloatArray:
        """Weigh the ghosts of a request.

        Args:
            request: Request with at least one ghost.
            rng: Generator for rules whose weights are themselves drawn.

        Returns:
            Finite weights, at least 0, with any sum. float64 [N].
        """


@runtime_checkable
class GhostMemory(Protocol):
    """State of a rule: one number for each ghost, stored in the ghost's row (``quality``).

    The controller calls these methods of a built-in rule when a ghost is made and when one is
    beaten, not when one is drawn; it never calls them on a user's own class. A rule reads the
    numbers from the ``qualities`` of a request's ghosts. A number is committed together with the
    result that changes it, so a resumed run continues with the same state.
    """

    def number_of_new(self, numbers: FloatArray) -> float:
        """Return the first number of a new ghost.

        Args:
            numbers: Numbers of the existing ghosts. float64 [N], N may be 0.
        """

    def number_after(self, numbers: FloatArray, index: int, *, num_wins: int) -> float:
        """Return the number of a ghost after an assignment in which a trainee beat it.

        Args:
            numbers: Numbers of all ghosts before the assignment. float64 [N].
            index: Position of the beaten ghost.
            num_wins: Number of matches that the trainee won against the ghost.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleMatchmaker:
    """Matchmaker that draws a share of the latest, and the rest from ghosts by a rule.

    Attributes:
        rule: Rule that weighs ghosts.
        latest_ratio: Share of opponents that are the latest, in [0, 1]; see `with_latest`.
    """

    rule: Rule
    latest_ratio: float

    def distribution(self, request: OpponentRequest, *, rng: np.random.Generator) -> Distribution:
        """Return the distribution that `draw` draws from."""
        if not 0.0 <= self.latest_ratio <= 1.0:
            raise ValueError(f"latest_ratio must be in [0, 1], got {self.latest_ratio!r}")
        # Rules may rely on at least one ghost, so they are not called without one.
        if not len(request.ghosts):
            return with_latest(request, ghosts=np.zeros(0), latest_ratio=1.0)
        weights = self.rule.weights(request, rng=rng)
        return with_latest(request, ghosts=normalized(weights), latest_ratio=self.latest_ratio)

    def draw(self, request: OpponentRequest, *, rng: np.random.Generator) -> Opponents:
        """Draw the latest, and ghosts by the rule."""
        return draw_opponents(request, self.distribution(request, rng=rng), rng=rng)


def normalized(weights: FloatArray) -> FloatArray:
    """Return probabilities in proportion to weights; uniform if their sum is below ``MIN_TOTAL``.

    Raises:
        ValueError: If a weight is negative or not finite.
    """
    total = float(weights.sum())
    if not math.isfinite(total) or (len(weights) and float(weights.min()) < 0.0):
        raise ValueError(f"weights must be finite and at least 0, got {weights!r}")
    if total < MIN_TOTAL:
        # For example PFSP gives every ghost the weight 0 if the policy beats all of them.
        return np.full(len(weights), 1.0 / max(len(weights), 1))
    return np.asarray(weights / total)


def with_latest(
    request: OpponentRequest, *, ghosts: FloatArray, latest_ratio: float
) -> Distribution:
    """Combine the probabilities of ghosts with the share of the latest.

    In the trainee's own population the latest is the trainee itself; in another population, the
    latest checkpoints of its policies with equal probabilities. Without ghosts the share of the
    latest is 1, and without latest checkpoints it is 0.

    Args:
        request: Request that is answered.
        ghosts: Probabilities of the ghosts, with sum 1. float64 [N]; N may be 0.
        latest_ratio: Share of the latest, in [0, 1].

    Raises:
        ValueError: If there is neither a ghost nor a latest checkpoint.
    """
    num_latest = len(request.latest)
    if not len(ghosts):
        # Without a ghost only the latest remain; in its own population the trainee is always there.
        latest_ratio = 1.0
    elif not request.is_own_population and not num_latest:
        latest_ratio = 0.0
    # In its own population the trainee plays other active policies only by `LivingMatchmaker`.
    if request.is_own_population:
        return Distribution(
            mirror=latest_ratio,
            latest=np.zeros(num_latest),
            ghosts=(1.0 - latest_ratio) * ghosts,
        )
    if not num_latest and not len(ghosts):
        raise ValueError("there is nobody to be drawn: no ghost and no latest checkpoint")
    return Distribution(
        mirror=0.0,
        latest=np.full(num_latest, latest_ratio / max(num_latest, 1)),
        ghosts=(1.0 - latest_ratio) * ghosts,
    )


def draw_opponents(
    request: OpponentRequest, distribution: Distribution, *, rng: np.random.Generator
) -> Opponents:
    """Draw the opponents of one assignment.

    Each opponent has exactly its probability. The number of the latest among the drawn ones
    (including the trainee itself) differs by at most one between assignments.

    Raises:
        ValueError: If ``num_opponents`` is below 1.
    """
    if request.num_opponents < 1:
        raise ValueError(f"num_opponents must be at least 1, got {request.num_opponents!r}")
    # The trainee itself gets an additional position after the latest.
    latest = np.append(distribution.latest, distribution.mirror)
    share = float(latest.sum())
    if not len(distribution.ghosts):
        # By rounding, the sum may be slightly below 1, and a draw from no ghosts would fail.
        share = 1.0
    # How many of the latest are drawn is almost fixed (`draw_count`), so that assignments differ
    # less; the probabilities stay the same.
    num_latest = draw_count(share, of=request.num_opponents, rng=rng)
    mirror = len(distribution.latest)
    drawn = draw_indices(latest, size=num_latest, rng=rng)
    ghosts = draw_indices(distribution.ghosts, size=request.num_opponents - num_latest, rng=rng)
    return Opponents(
        num_mirrors=int((drawn == mirror).sum()),
        players=(
            *(request.latest[int(index)] for index in drawn if index != mirror),
            *(request.ghosts[int(index)] for index in ghosts),
        ),
    )


def draw_count(share: float, *, of: int, rng: np.random.Generator) -> int:
    """Round ``share * of`` up or down at random, so that the expected value is exact."""
    # The product is rounded first, because 0.1 * 30 is slightly more than 3.
    number = min(round(share * of, 9), float(of))
    whole = math.floor(number)
    # The expected value is whole + (number - whole).
    return whole + int(rng.random() < number - whole)


def draw_indices(weights: FloatArray, *, size: int, rng: np.random.Generator) -> IntArray:
    """Draw positions in proportion to weights, with replacement. int64 [size].

    A position of weight 0 is never drawn. The weights must have a positive sum, unless ``size`` is
    0.
    """
    if size == 0:
        return np.zeros(0, dtype=np.int64)
    # The cumulative distribution is inverted; side="right" skips positions of weight 0.
    cumulative = np.cumsum(weights)
    drawn = np.searchsorted(cumulative, rng.random(size) * cumulative[-1], side="right")
    # A product may be rounded up to the total itself; it then means the last position with weight.
    return np.asarray(np.minimum(drawn, np.searchsorted(cumulative, cumulative[-1])))
