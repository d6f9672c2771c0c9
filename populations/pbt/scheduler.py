"""Each policy's own PBT clock, in its agent steps: no policy waits for another."""

from __future__ import annotations

from collections.abc import Mapping

from arena.types import PolicyId
from populations.pbt.settings import PbtConfig
from populations.records.rows import Json, PolicyRow
from populations.records.tables import Tables


def interval(policy: PolicyRow, pbt: PbtConfig) -> int:
    """Return agent steps between a policy's last decision and the next one."""
    # A policy learns ever more slowly, so equal intervals would show ever less of a change.
    return max(pbt.ready_agent_steps, int(pbt.ready_growth * policy.ready_at))


def mark_of(policy: PolicyRow, pbt: PbtConfig) -> int:
    """Return the agent steps at which the next decision about a policy is due.

    Args:
        policy: Policy's counters; ``ready_at`` is in the journal, so a resume changes nothing here.
        pbt: Settings; none decides before the warm-up is over, for early ranks are noise.
    """
    return max(policy.ready_at + interval(policy, pbt), pbt.warm_up_agent_steps)


def next_mark(policy: PolicyRow, pbt: PbtConfig) -> int:
    """Return agent steps that a policy trains until a decision about it is due; 0 if it is."""
    return max(mark_of(policy, pbt) - policy.agent_steps, 0)


def num_marks(policy: PolicyRow, pbt: PbtConfig) -> int:
    """Count the marks that a policy has passed since its last decision; 0: none is due.

    A decision that waits for a whole interval has missed the mark after it.
    """
    # The mark itself counts as passed.
    passed = policy.agent_steps - mark_of(policy, pbt)
    return max(passed // max(interval(policy, pbt), 1) + 1, 0)


def num_due(tables: Tables, *, pbt: Mapping[str, PbtConfig]) -> int:
    """Count the marks of all clocks so far, those for which decisions wait included.

    Args:
        tables: All rows.
        pbt: Settings by population.
    """
    return tables.run.pbt_marks + sum(_marks_that_wait(tables, pbt).values())


def decisions_document(tables: Tables, *, pbt: Mapping[str, PbtConfig]) -> dict[str, Json]:
    """Return the counts of decisions as ``status --json`` has them."""
    marks = _marks_that_wait(tables, pbt)
    return {
        "due": num_due(tables, pbt=pbt),
        "made": tables.run.pbt_decisions,
        # A policy whose weights were replaced meanwhile has a new clock, and waits for nothing.
        "waiting": {name: row.reason for name, row in tables.postponed.items() if marks[name]},
    }


def _marks_that_wait(tables: Tables, pbt: Mapping[str, PbtConfig]) -> dict[PolicyId, int]:
    policies = [tables.policies[name] for name in tables.postponed]
    return {row.policy: num_marks(row, pbt[row.population]) for row in policies}
