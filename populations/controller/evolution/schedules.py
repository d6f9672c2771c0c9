"""A recorded schedule of hyperparameters, followed by one policy in the place of PBT."""

from __future__ import annotations

from msgspec.structs import replace

from populations.config.run_config import RunConfig
from populations.controller.evolution.generations import explored_on
from populations.controller.state.fits import Fits
from populations.controller.state.settings import Settings
from populations.controller.state.transaction import Transaction
from populations.records.rows import PolicyRow


def follow(config: RunConfig, fits: Fits, tx: Transaction, policy: PolicyRow) -> None:
    """Change a policy's hyperparameters if it has reached a mark of its schedule.

    Of several marks within one assignment the last one holds.
    """
    schedule = config.populations[policy.population].schedule
    reached = [
        (index, entry)
        for index, entry in enumerate(schedule)
        # Each mark that was followed began a generation, so those up to its beginning are done.
        if policy.generation_at < entry.agent_steps <= policy.agent_steps
    ]
    if not reached:
        return
    index, entry = reached[-1]
    new = replace(policy, hyperparameters=dict(entry.hyperparameters))
    after = explored_on(fits, tx, new, cause="replay")
    tx.add_event(
        "replayed",
        policy.policy,
        entry=index,
        num_entries=len(schedule),
        num_skipped=len(reached) - 1,
        mark=entry.agent_steps,
        agent_steps=policy.agent_steps,
        generation=after.generation,
        old=dict(policy.hyperparameters),
        new=dict(entry.hyperparameters),
    )


def to_next_entry(settings: Settings, policy: PolicyRow) -> int | None:
    """Return agent steps to a policy's next mark in its schedules; None if there is none ahead."""
    schedule = settings.config.populations[policy.population].schedule
    marks = [entry.agent_steps for entry in schedule]
    # Schedules of single hyperparameters; those without marks change with each assignment.
    mark = settings.scheduled[policy.population].next_mark(policy.agent_steps)
    marks += [mark] if mark is not None else []
    return min((at - policy.agent_steps for at in marks if at > policy.agent_steps), default=None)
