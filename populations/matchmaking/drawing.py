"""From a rule's weights to the opponents of one assignment: what all rules share.

A rule says how much each ghost weighs, the share of the latest is set aside, and one draw makes
opponents of it. Shapes: N ghosts, M latest checkpoints.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from populations.candidates import FloatArray, IntArray
from populations.core import OpponentRequest, Opponents

MIN_TOTAL = 1e-10
"""Weights that sum to less say nothing."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Distribution:
    """Probabilities of an opponent; they sum to one.

    Attributes:
        mirror: The trainee itself.
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
            request: Has at least one ghost.
            rng: Generator for rules whose weights are themselves drawn.

        Returns:
            Finite, at least 0, with any sum. float64 [N].
        """


@runtime_checkable
class GhostMemory(Protocol):
    """State of a rule: one number for each ghost, which lies in the ghost's row (``quality``).

    A rule of Arena's that has these methods is told when ghosts come and when they are beaten, not
    when they are drawn; a user's own class is not told. It finds the numbers in the ``qualities``
    of a request's ghosts. They are committed with what changes them,
    so a resumed run goes on with the same state.
    """

    def number_of_new(self, numbers: FloatArray) -> float:
        """Return the number with which a ghost enters.

        Args:
            numbers: Numbers of the ghosts that are there. float64 [N], N may be 0.
        """

    def number_after(self, numbers: FloatArray, index: int, *, num_wins: int) -> float:
        """Return the number of a ghost after an assignment in which a trainee beat it.

        Args:
            numbers: Numbers of all ghosts before. float64 [N].
            index: Position of the beaten ghost.
            num_wins: Matches that the trainee won against it.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleMatchmaker:
    """A matchmaker of ghosts by a rule, and of the latest.

    Attributes:
        rule: Rule that weighs ghosts.
        latest_ratio: Share of opponents that are the latest instead.
    """

    rule: Rule
    latest_ratio: float

    def distribution(self, request: OpponentRequest, *, rng: np.random.Generator) -> Distribution:
        """Return the distribution that `draw` draws from."""
        if not 0.0 <= self.latest_ratio <= 1.0:
            raise ValueError(f"latest_ratio must be in [0, 1], got {self.latest_ratio!r}")
        # Rules may rely on at least one ghost, so they are not called without.
        if not len(request.ghosts):
            return with_latest(request, ghosts=np.zeros(0), latest_ratio=1.0)
        weights = self.rule.weights(request, rng=rng)
        return with_latest(request, ghosts=normalized(weights), latest_ratio=self.latest_ratio)

    def draw(self, request: OpponentRequest, *, rng: np.random.Generator) -> Opponents:
        """Draw the latest, and ghosts by the rule."""
        return draw_opponents(request, self.distribution(request, rng=rng), rng=rng)


def normalized(weights: FloatArray) -> FloatArray:
    """Return probabilities in proportion to some weights; uniform if they sum to nothing.

    Raises:
        ValueError: If a weight is negative or not finite.
    """
    total = float(weights.sum())
    if not math.isfinite(total) or (len(weights) and float(weights.min()) < 0.0):
        raise ValueError(f"weights must be finite and at least 0, got {weights!r}")
    if total < MIN_TOTAL:
        # PFSP of a policy that beats all: every ghost is as good as any other.
        return np.full(len(weights), 1.0 / max(len(weights), 1))
    return np.asarray(weights / total)


def with_latest(
    request: OpponentRequest, *, ghosts: FloatArray, latest_ratio: float
) -> Distribution:
    """Set the share of the latest aside.

    In the trainee's own population the latest is the trainee itself; in another one, the latest
    checkpoints of its policies, all alike. Without ghosts the latest have all, and without latest
    checkpoints the ghosts.

    Args:
        request: Request that is answered.
        ghosts: Probabilities of the ghosts among themselves. float64 [N]; N may be 0.
        latest_ratio: The share of the latest, in [0, 1].

    Raises:
        ValueError: If there is neither a ghost nor a latest checkpoint.
    """
    num_latest = len(request.latest)
    if not len(ghosts):
        # The latest have all without a ghost: in the own population the trainee itself is always
        # there.
        latest_ratio = 1.0
    elif not request.is_own_population and not num_latest:
        latest_ratio = 0.0
    # The other active policies are `living`'s business; here they have no share.
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

    Each opponent has its probability exactly. The number of the latest among them (the trainee
    itself included) varies by at most one.

    Raises:
        ValueError: If ``num_opponents`` is below 1.
    """
    if request.num_opponents < 1:
        raise ValueError(f"num_opponents must be at least 1, got {request.num_opponents!r}")
    # One more position, for the trainee itself.
    latest = np.append(distribution.latest, distribution.mirror)
    share = float(latest.sum())
    if not len(distribution.ghosts):
        # The sum of the latest may be a bit below 1, and a draw from no ghosts would fail.
        share = 1.0
    # The latest are counted, not drawn one by one: assignments differ less, and no probability
    # changes.
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
    """Draw a share of ``of``: the whole part is certain, one draw decides about the rest."""
    # The number is rounded, because 0.1 * 30 is a bit more than 3.
    number = min(round(share * of, 9), float(of))
    whole = math.floor(number)
    # E = whole + (number - whole)
    return whole + int(rng.random() < number - whole)


def draw_indices(weights: FloatArray, *, size: int, rng: np.random.Generator) -> IntArray:
    """Draw positions in proportion to weights, with replacement. int64 [size].

    What weighs nothing is never drawn. Weights of positive sum, unless ``size`` is 0.
    """
    if size == 0:
        return np.zeros(0, dtype=np.int64)
    # Inverse of the cumulative distribution; side="right" skips positions of weight 0.
    cumulative = np.cumsum(weights)
    drawn = np.searchsorted(cumulative, rng.random(size) * cumulative[-1], side="right")
    # A product may be rounded up to the sum itself: it falls to the last position with a weight.
    return np.asarray(np.minimum(drawn, np.searchsorted(cumulative, cumulative[-1])))
