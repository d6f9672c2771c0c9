"""Metrics of an assignment that are about one of its trainees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from arena.types import PolicyId
from arena.wire.messages import Trainee


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
