"""What an assignment measured of one of those who learned in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from arena.types import PolicyId
from arena.wire.messages import Trainee


def metrics_of_trainee(
    metrics: Mapping[str, float], trainees: Sequence[Trainee], *, of: PolicyId
) -> dict[str, float]:
    """One trainee's metrics, without those of the others: of several each has its own below its id.

    Args:
        metrics: Of the assignment.
        trainees: Who learned in it.
        of: Whose are wanted.
    """
    others = tuple(f"{t.policy}/" for t in trainees if t.policy != of)
    return {
        name.removeprefix(f"{of}/"): value
        for name, value in metrics.items()
        if not name.startswith(others)
    }
