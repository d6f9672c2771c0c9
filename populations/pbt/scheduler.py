"""PBT clock of each policy, in its own agent steps, so that no policy waits for another."""

from __future__ import annotations

from collections.abc import Mapping

from arena.types import PolicyId
from populations.pbt.settings import PbtConfig
from populations.records.rows import Json, PolicyRow
from populations.records.tables import Tables


def interval(policy: PolicyRow, pbt: PbtConfig) -> int:
    """Return agent steps between a policy's last decision and the next one."""
    # A policy learns more slowly with age, so effects of a change take longer to show.
    return max(pbt.ready_agent_steps, int(pbt.ready_growth * policy.ready_at))


def mark_of(policy: PolicyRow, pbt: PbtConfig) -> int:
    """Return the agent steps at which the next decision about a policy is due.

    Args:
        policy: Policy's row; its ``ready_at`` is durable, so a resume gives the same answer.
        pbt: Settings; no decision is due before the warm-up ends, because early ranks are noise.
    """
    return max(policy.ready_at + interval(policy, pbt), pbt.warm_up_agent_steps)


def next_mark(policy: PolicyRow, pbt: PbtConfig) -> int:
    """Return the agent steps until a decision about a policy is due; 0 if it is due now."""
    return max(mark_of(policy, pbt) - policy.agent_steps, 0)


def num_marks(policy: PolicyRow, pbt: PbtConfig) -> int:
    """Count the marks that a policy has passed since its last decision; 0: none is due.

    Marks follow at each interval, so the count is above 1 for a decision that has been postponed
    for more than an interval.
    """
    # A policy that is exactly at a mark has passed it.
    passed = policy.agent_steps - mark_of(policy, pbt)
    return max(passed // max(interval(policy, pbt), 1) + 1, 0)


def num_due(tables: Tables, *, pbt: Mapping[str, PbtConfig]) -> int:
    """Count the marks that all clocks have passed, including those of postponed decisions.

    Args:
        tables: All rows.
        pbt: Settings by population.
    """
    return tables.run.pbt_marks + sum(_marks_that_wait(tables, pbt).values())


def decisions_document(tables: Tables, *, pbt: Mapping[str, PbtConfig]) -> dict[str, Json]:
    """Return the counts of decisions for the output of ``status --json``."""
    marks = _marks_that_wait(tables, pbt)
    return {
        "due": num_due(tables, pbt=pbt),
        "made": tables.run.pbt_decisions,
        # A policy whose weights were replaced meanwhile has a new clock, so nothing is due for it.
        "waiting": {name: row.reason for name, row in tables.postponed.items() if marks[name]},
    }


def _marks_that_wait(tables: Tables, pbt: Mapping[str, PbtConfig]) -> dict[PolicyId, int]:
    policies = [tables.policies[name] for name in tables.postponed]
    return {row.policy: num_marks(row, pbt[row.population]) for row in policies}
