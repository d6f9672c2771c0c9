"""Metrics of an assignment that are about one of its trainees, and means over several of these."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from arena.types import PolicyId
from arena.wire.messages import Train, Trainee

EPISODES = "episode/count"

MIN_EPISODES = 100
"""Least number of newest episodes for a mean; with fewer there is none."""


def metrics_of_trainee(
    metrics: Mapping[str, float], trainees: Sequence[Trainee], *, of: PolicyId
) -> dict[str, float]:
    """Return one trainee's metrics and those of the whole assignment.

    With several trainees, names of a trainee's own metrics begin with its id, which is removed.

    Args:
        metrics: Metrics of the assignment.
        trainees: Trainees of the assignment.
        of: Policy whose metrics are returned.
    """
    # Names without any trainee's id are about the assignment as a whole, so they are included.
    others = tuple(f"{t.policy}/" for t in trainees if t.policy != of)
    return {
        name.removeprefix(f"{of}/"): value
        for name, value in metrics.items()
        if not name.startswith(others)
    }


class NewestEpisodes(Struct):
    """Mean of a metric over each policy's newest training episodes.

    Only episodes of the policy's present generation in the run's present lesson count, because
    other weights or an easier environment say nothing about the present.

    Attributes:
        metric: Name of the metric, a mean over an assignment's ended episodes.
    """

    metric: str
    _newest: dict[PolicyId, tuple[tuple[int, int], deque[tuple[float, float]]]] = field(
        default_factory=dict
    )
    """By policy, (lesson, generation) and pairs (episodes, mean) of its newest assignments."""

    def add(self, message: Train, trainee: Trainee, metrics: Mapping[str, float]) -> None:
        """Add a trainee's metrics of a finished assignment, which must be passed only once."""
        mean = metrics.get(self.metric)
        if mean is None:
            return
        when = message.lesson, trainee.generation
        newest, means = self._newest.get(trainee.policy, (when, deque[tuple[float, float]]()))
        if when < newest:
            return
        if when > newest:
            means = deque()
        # A reported mean is of at least one episode, even if the count is missing.
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
