"""Populations that learn one at a time (``matchmaking.learning_side_turns``).

Whose turn it is follows from the policies' agent steps alone, so there is nothing to save. Source:
``team_change`` of Unity ML-Agents' self-play, here by agent steps of each policy.

Tests: `tests/populations/controller/assignments/test_turns.py`.
"""

from __future__ import annotations

from populations.controller.state.state import ControllerState
from populations.records.rows import PolicyRow


def population_in_turn(state: ControllerState) -> str | None:
    """Return the one population that may learn now; None: all may.

    Each of its policies does ``every_agent_steps`` in a turn. The population with the fewest whole
    turns comes next, of equals the first in the configuration.
    """
    turns = state.config.matchmaking.learning_side_turns
    if turns is None:
        return None
    limit = state.config.stop.agent_steps_per_policy
    least: dict[str, int] = {}
    for row in state.tables.policies.values():
        # One that has reached its limit, or never trains again, must not hold the turn.
        if row.state == "active" and (limit is None or row.agent_steps < limit):
            least[row.population] = min(row.agent_steps, least.get(row.population, row.agent_steps))
    order = {name: index for index, name in enumerate(state.setup.populations)}
    return min(
        least,
        key=lambda name: (least[name] // turns.every_agent_steps, order[name]),
        default=None,
    )


def steps_to_end(state: ControllerState, policy: PolicyRow) -> int | None:
    """Return agent steps until a policy's turn is over; None: there are no turns."""
    turns = state.config.matchmaking.learning_side_turns
    if turns is None:
        return None
    return turns.every_agent_steps - policy.agent_steps % turns.every_agent_steps
