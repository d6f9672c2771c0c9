"""For how many agent steps an assignment trains."""

from __future__ import annotations

from collections.abc import Sequence

from populations.controller.replaying import to_next_entry
from populations.controller.snapshots import steps_to_next
from populations.controller.state import ControllerState
from populations.controller.transaction import Transaction
from populations.pbt.scheduler import next_mark
from populations.types import PolicyRow

FIXED_AGENT_STEPS = 16384
MIN_EPISODES_PER_ENVIRONMENT = 2.0


def team_budget(state: ControllerState, tx: Transaction, team: Sequence[PolicyRow]) -> int:
    """For those who learn together: the most by which none of them passes its own budget.

    Agents of all populations are taken to decide equally often.
    """
    agents = [len(state.setup.populations[row.population].agents) for row in team]
    return min(
        max(budget(state, tx, row) * sum(agents) // own, 1)
        for row, own in zip(team, agents, strict=True)
    )


def budget(state: ControllerState, tx: Transaction, policy: PolicyRow) -> int:
    """The smallest of what the target time allows and the steps to the policy's next mark.

    At least two mean episodes per environment, so that every assignment plays matches to their
    ends. Fixed in deterministic mode, where measured speed must decide nothing. Never past the next
    mark of a schedule. The learner does whole rollouts, so it may do a little more.
    """
    fixed = state.config.assignment.agent_steps
    ends_at = to_next_entry(state, policy)
    if state.config.deterministic:
        wanted = fixed or FIXED_AGENT_STEPS
        return wanted if ends_at is None else min(wanted, ends_at)
    if fixed is None:
        seconds = state.config.assignment.target_s
        if state.config.stop.duration_s is not None:
            left_s = state.config.stop.duration_s - state.elapsed_s(tx.now)
            seconds = max(min(seconds, left_s), 0.0)
        fixed = int(_speed(state, policy) * seconds)
    pbt = state.pbt(policy.population)
    marks = [
        policy.agent_steps + steps_to_next(state, policy),
        policy.agent_steps
        + next_mark(
            policy,
            ready_agent_steps=pbt.ready_agent_steps,
            warm_up_agent_steps=pbt.warm_up_agent_steps,
        ),
    ]
    if state.config.stop.agent_steps_per_policy is not None:
        marks.append(state.config.stop.agent_steps_per_policy)
    ahead = [mark - policy.agent_steps for mark in marks if mark > policy.agent_steps]
    floor = int(
        MIN_EPISODES_PER_ENVIRONMENT
        * policy.episode_length
        * state.setup.num_envs
        * _decisions_per_step(state, policy)
    )
    wanted = max(min([fixed, *ahead]), floor, 1)
    # A schedule is followed to the step, however few matches that leaves.
    return wanted if ends_at is None else min(wanted, ends_at)


def _speed(state: ControllerState, policy: PolicyRow) -> float:
    """Agent steps per second: the policy's own, else its population's mean, else one rollout's."""
    if policy.speed > 0.0:
        return policy.speed
    speeds = [
        row.speed
        for row in state.tables.policies.values()
        if row.population == policy.population and row.speed > 0.0
    ]
    return sum(speeds) / len(speeds) if speeds else 0.0


def _decisions_per_step(state: ControllerState, policy: PolicyRow) -> float:
    """Trainee decisions per step of one environment: all its agents at once, or one in turn."""
    if state.setup.spec.api == "aec":
        return 1.0
    return float(len(state.setup.populations[policy.population].agents))
