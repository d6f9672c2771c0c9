"""Each policy's own PBT clock, in its agent steps: no policy waits for another."""

from __future__ import annotations

from populations.pbt.settings import PbtConfig
from populations.records.rows import PolicyRow


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
