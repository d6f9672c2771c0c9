"""Marks at which a policy's checkpoint is to be exported. Exports decide nothing."""

from __future__ import annotations

from populations.controller.state.state import ControllerState
from populations.controller.state.transaction import Transaction
from populations.records.rows import PolicyRow

EXPORT_DUE = "export_due"
"""Kind of the event; its subject is the policy."""


def mark_export(state: ControllerState, tx: Transaction, policy: PolicyRow, *, before: int) -> None:
    """Record that a policy's new checkpoint is to be exported, if it has passed a mark.

    Args:
        state: The controller.
        tx: Takes the event.
        policy: Policy with its new checkpoint.
        before: Agent steps that it had before.
    """
    every = state.config.checkpoints.export_every_agent_steps
    if every and policy.agent_steps // every > before // every:
        tx.add_event(
            EXPORT_DUE,
            policy.policy,
            # As a PLAYER of commands: by the time of the export the policy may have trained on.
            player=f"{policy.policy}@{policy.agent_steps}",
            agent_steps=policy.agent_steps,
            # A directory's name: as many digits as those of checkpoints and ghosts.
            to=f"{policy.policy}/{policy.agent_steps:012d}",
            export_every_agent_steps=every,
        )
