"""Each policy's own PBT clock, in its agent steps: nobody waits for anybody."""

from __future__ import annotations

from populations.types import PolicyRow


def next_mark(policy: PolicyRow, *, ready_agent_steps: int, warm_up_agent_steps: int) -> int:
    """Agent steps that a policy trains until a decision about it is due; 0 if it is.

    Args:
        policy: Its counters; ``ready_at`` is in the journal, so a resume changes nothing here.
        ready_agent_steps: Between two decisions.
        warm_up_agent_steps: Before the first one: early ranks are noise.
    """
    mark = max(policy.ready_at + ready_agent_steps, warm_up_agent_steps)
    return max(mark - policy.agent_steps, 0)


def is_ready(policy: PolicyRow, *, ready_agent_steps: int, warm_up_agent_steps: int) -> bool:
    """Whether a decision about a policy is due."""
    remaining = next_mark(
        policy, ready_agent_steps=ready_agent_steps, warm_up_agent_steps=warm_up_agent_steps
    )
    return remaining == 0
