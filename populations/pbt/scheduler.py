"""Each policy's own PBT clock, in its agent steps: no policy waits for another."""

from __future__ import annotations

from populations.records.rows import PolicyRow


def next_mark(policy: PolicyRow, *, ready_agent_steps: int, warm_up_agent_steps: int) -> int:
    """Return agent steps that a policy trains until a decision about it is due; 0 if it is.

    Args:
        policy: Policy's counters; ``ready_at`` is in the journal, so a resume changes nothing here.
        ready_agent_steps: Agent steps between two decisions.
        warm_up_agent_steps: Agent steps before the first one: early ranks are noise.
    """
    mark = max(policy.ready_at + ready_agent_steps, warm_up_agent_steps)
    return max(mark - policy.agent_steps, 0)


def num_marks(policy: PolicyRow, *, ready_agent_steps: int, warm_up_agent_steps: int) -> int:
    """Count the marks that a policy has passed since its last decision; 0: none is due.

    A decision that waits for a whole interval has missed the mark after it.
    """
    mark = max(policy.ready_at + ready_agent_steps, warm_up_agent_steps)
    # The mark itself counts as passed.
    return max((policy.agent_steps - mark) // max(ready_agent_steps, 1) + 1, 0)
