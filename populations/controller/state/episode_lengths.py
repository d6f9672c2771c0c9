"""How long episodes are expected to be."""

from __future__ import annotations

from populations.controller.state.state import ControllerState
from populations.records.rows import PolicyRow
from populations.records.tables import Tables


def expected_length(state: ControllerState, policy: PolicyRow) -> float:
    """Return the expected calls of ``step`` in an episode; 0: not known.

    It is the policy's own mean, else the mean of its population, else what was measured at launch.
    """
    known = (
        [policy.episode_length] if policy.episode_length > 0.0 else _lengths(state.tables, policy)
    )
    return sum(known) / len(known) if known else state.measured_length


def _lengths(tables: Tables, policy: PolicyRow) -> list[float]:
    # 0 is unknown.
    return [
        row.episode_length
        for row in tables.policies.values()
        if row.population == policy.population and row.episode_length > 0.0
    ]
