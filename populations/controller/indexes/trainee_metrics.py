"""Metrics of an assignment that are about one of its trainees, and means over several of these."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from arena.types import PolicyId
from arena.wire.messages import Train, Trainee

EPISODES = "episode/count"

MIN_EPISODES = 100
"""Newest episodes, or more, that a mean is of; with fewer there is none."""


def metrics_of_trainee(
    metrics: Mapping[str, float], trainees: Sequence[Trainee], *, of: PolicyId
) -> dict[str, float]:
    """Return one trainee's metrics; several trainees have theirs below their ids.

    Args:
        metrics: Metrics of the assignment.
        trainees: Trainees of the assignment.
        of: Policy whose metrics are wanted.
    """
    # Names without any trainee's id are about the assignment as a whole.
    others = tuple(f"{t.policy}/" for t in trainees if t.policy != of)
    return {
        name.removeprefix(f"{of}/"): value
        for name, value in metrics.items()
        if not name.startswith(others)
    }


class NewestEpisodes(Struct):
    """Mean of a metric over each policy's newest training episodes.

    They are of the policy's present generation in the run's present lesson: what was measured of
    other weights, or in an easier environment, says nothing about it.

    Attributes:
        metric: Mean over an assignment's ended episodes.
    """

    metric: str
    _newest: dict[PolicyId, tuple[tuple[int, int], deque[tuple[float, float]]]] = field(
        default_factory=dict
    )
    """Lesson and generation of each policy's newest assignments, and their episodes and means."""

    def add(self, message: Train, trainee: Trainee, metrics: Mapping[str, float]) -> None:
        """Take in a trainee's metrics of a finished assignment, once."""
        mean = metrics.get(self.metric)
        if mean is None:
            return
        when = message.lesson, trainee.generation
        newest, means = self._newest.get(trainee.policy, (when, deque[tuple[float, float]]()))
        if when < newest:
            return
        if when > newest:
            means = deque()
        # An end that was reported is one episode at least.
        means.append((max(metrics.get(EPISODES, 0.0), 1.0), mean))
        while sum(episodes for episodes, _ in means) - means[0][0] >= MIN_EPISODES:
            means.popleft()
        self._newest[trainee.policy] = when, means

    def mean(self, policy: PolicyId, *, generation: int, lesson: int) -> float | None:
        """Return the mean over a policy's newest episodes; None while there are too few."""
        newest, means = self._newest.get(policy, (None, ()))
        total = sum(episodes for episodes, _ in means)
        if newest != (lesson, generation) or total < MIN_EPISODES:
            return None
        return sum(episodes * mean for episodes, mean in means) / total
