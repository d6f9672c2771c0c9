"""For how many agent steps an assignment trains."""

from __future__ import annotations

from collections.abc import Sequence

from populations.config.run_config import RunConfig
from populations.controller.evolution.snapshots import steps_to_next
from populations.controller.state.leases import Learner
from populations.controller.state.settings import Settings
from populations.controller.state.state import ControllerState
from populations.controller.state.transaction import Transaction
from populations.pbt.scheduler import next_mark
from populations.records.rows import PolicyRow
from populations.records.tables import Tables

FIXED_AGENT_STEPS = 16384
"""Budget in deterministic mode, where no measured speed may decide it."""

UNBOUNDED_AGENT_STEPS = 2**48
"""Budget of an assignment that ends by its episodes."""

MAX_DOUBLINGS = 12
"""A learner's day for an assignment of some seconds: longer episodes than that are not awaited."""


def team_budget(
    state: ControllerState, tx: Transaction, team: Sequence[PolicyRow], *, learner: Learner
) -> int:
    """Return a team's budget on a learner: the most by which none of them passes its own.

    Agents of all populations are taken to decide equally often.
    """
    agents = [len(state.settings.setup.populations[row.population].agents) for row in team]
    # A policy does B * own / sum(agents) of a team's budget B, which its own budget bounds.
    return min(
        max(budget(state, tx, row, learner=learner) * sum(agents) // own, 1)
        for row, own in zip(team, agents, strict=True)
    )


def budget(state: ControllerState, tx: Transaction, policy: PolicyRow, *, learner: Learner) -> int:
    """Return the smallest of what the target time allows and the steps to the policy's next mark.

    The learner does whole rollouts, so it may do a little more.
    """
    config, run = state.settings.config, state.tables.run
    ends_at = _to_next_entry(state.settings, policy)
    wanted = usual_budget(config, state.tables, policy, learner=learner)
    if config.deterministic:
        return wanted if ends_at is None else min(wanted, ends_at)
    # The budget doubles with each assignment in which no episode ended, so that episodes end
    # however long they are. The doubling stays while episodes begin anew each time.
    doublings = min(state.blame.doublings[policy.policy], MAX_DOUBLINGS)
    stop = config.stop
    # Whole episodes are worth more than marks that are met to the step.
    if config.assignment.episodes is None:
        wanted = wanted << doublings if doublings else min([wanted, *_marks(config, policy)])
    speed = _speed(state.tables, policy, learner)
    # A budget ends with the run, however often it was doubled.
    if stop.duration_s is not None and speed > 0.0:
        left_s = max(stop.duration_s - state.phase.trained_s(tx.now, run), 0.0)
        wanted = min(wanted, int(speed * left_s))
    if stop.agent_steps_per_policy is not None and stop.agent_steps_per_policy > policy.agent_steps:
        wanted = min(wanted, stop.agent_steps_per_policy - policy.agent_steps)
    if stop.agent_steps is not None:
        wanted = min(wanted, stop.agent_steps - run.agent_steps)
    # A schedule is followed to the step, however few matches that leaves.
    return max(wanted if ends_at is None else min(wanted, ends_at), 1)


def usual_budget(config: RunConfig, tables: Tables, policy: PolicyRow, *, learner: Learner) -> int:
    """Return agent steps in the time that an assignment should take, wherever marks are."""
    assignment = config.assignment
    # Whole episodes end the assignment instead.
    if assignment.episodes is not None:
        return UNBOUNDED_AGENT_STEPS
    # Measured speed must decide nothing.
    if assignment.agent_steps is not None or config.deterministic:
        return assignment.agent_steps or FIXED_AGENT_STEPS
    # 0 before any speed is known: the learner does one rollout, which measures it.
    return int(_speed(tables, policy, learner) * assignment.target_s)


def _marks(config: RunConfig, policy: PolicyRow) -> list[int]:
    """Return agent steps to the policy's next ghost and to its next decision of PBT."""
    pbt = config.pbt_of(policy.population)
    mark = next_mark(policy, pbt)
    turns = config.matchmaking.learning_side_turns
    if turns is not None:
        turn_ends = turns.every_agent_steps - policy.agent_steps % turns.every_agent_steps
        mark = min(mark, turn_ends) if mark > 0 else turn_ends
    # A mark that has passed waits for something else (matches, a fit) and bounds nothing.
    return [ahead for ahead in (steps_to_next(config, policy), mark) if ahead > 0]


def _to_next_entry(settings: Settings, policy: PolicyRow) -> int | None:
    """Return agent steps to a policy's next mark in its schedules; None if there is none ahead."""
    schedule = settings.config.populations[policy.population].schedule
    marks = [entry.agent_steps for entry in schedule]
    # Schedules of single hyperparameters; those without marks change with each assignment.
    mark = settings.scheduled[policy.population].next_mark(policy.agent_steps)
    marks += [mark] if mark is not None else []
    return min((at - policy.agent_steps for at in marks if at > policy.agent_steps), default=None)


def _speed(tables: Tables, policy: PolicyRow, learner: Learner) -> float:
    """Return agent steps per second: of the population on the learner, else of the policy
    anywhere, else of its population; 0: nothing is known.
    """
    # Machines differ by more than policies of one population.
    if policy.population in learner.speeds:
        return learner.speeds[policy.population]
    if policy.speed > 0.0:
        return policy.speed
    speeds = [
        row.speed
        for row in tables.policies.values()
        if row.population == policy.population and row.speed > 0.0
    ]
    return sum(speeds) / len(speeds) if speeds else 0.0
