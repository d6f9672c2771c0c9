"""Choice of the team that a learner trains next: a policy alone, its mates too, or its rival.

Tests: `tests/populations/controller/assignments/test_next_team.py`,
`tests/populations/controller/assignments/test_carried_episodes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass

from arena.types import LearnerId, PolicyId, policy_of_trainee
from arena.wire.messages import Train
from populations.controller.assignments import carried_episodes
from populations.controller.assignments.budgets import budget, usual_budget
from populations.controller.assignments.turns import population_in_turn
from populations.controller.evaluation.prices import CLEARLY
from populations.controller.state.leases import Learner
from populations.controller.state.state import ControllerState
from populations.controller.state.teams import Team, held_up, team_of
from populations.controller.state.transaction import Transaction
from populations.records.rows import PolicyRow


def next_team(state: ControllerState, tx: Transaction, learner_id: LearnerId) -> Team | None:
    """Choose the policy that has trained least, of those free to train, and all that learn with it.

    One whose episodes another learner holds is left to that one, unless it falls behind. A policy
    with a pending decision of PBT is not free, nor is one whose mate is not.

    Returns:
        Empty: there is nothing to train. None: what there is is left to other learners.
    """
    learner = state.learners[learner_id]
    turn = population_in_turn(state)

    def may_train(population: str) -> bool:
        return turn in (None, population) and _may_train(state, learner, population)

    blocked = held_up(state)
    waiting = blocked | _waiting(state)

    def next_policy(held_up: Set[PolicyId]) -> PolicyRow | None:
        # Initial checkpoints come first, so that each population always has a frozen player.
        return state.training_queue.next(
            state.tables,
            held_up=held_up,
            limit=state.config.stop.agent_steps_per_policy,
            may_train=may_train,
        )

    # A policy that fails lets others train first; they show if it is to blame.
    first = next_policy(waiting)
    if first is not None or _others_train(state, waiting):
        blocked = waiting
    elif waiting != blocked:
        first = next_policy(blocked)
    if first is None:
        return ()
    # Whole episodes have no bound in steps; a rival is then no further ahead than a ghost is old.
    max_lead = min(
        usual_budget(state, first, learner=learner), state.config.ghosts.every_agent_steps
    )
    free = FreePolicies(state=state, held_up=blocked, may_train=may_train, max_lead=max_lead)
    team = free.team_with(first)
    if not team:
        return ()
    if _is_left_to_faster(state, tx, learner, team):
        return None
    names = dict.fromkeys(episodes.team for episodes in learner.episodes.values())
    held = (tuple(state.tables.policies[policy] for policy in policies) for policies in names)
    own = [known for known in held if turn in (None, known[0].population) and free.may_learn(known)]
    return carried_episodes.choose(
        state,
        learner_id,
        team,
        own=own,
        max_lead=carried_episodes.MAX_LEAD_ASSIGNMENTS * budget(state, tx, first, learner=learner),
    )


def _waiting(state: ControllerState) -> Set[PolicyId]:
    """Return policies that let others train first, because they failed."""
    waiting = set()
    # Few have failed, also where there are thousands of policies.
    for name in state.ledger.suspects():
        policy, generation = policy_of_trainee(name)
        row = state.tables.policies[policy]
        if row.generation == generation and state.ledger.waits(name, is_evaluation=False):
            waiting |= {mate.policy for mate in team_of(state, row)}
    return waiting


def _others_train(state: ControllerState, waiting: Set[PolicyId]) -> bool:
    """Return whether policies that do not wait are in training."""
    held = (state.tables.assignments.get(assignment_id) for assignment_id in state.holders)
    return bool(waiting) and any(
        trainee.policy not in waiting
        for row in held
        if row is not None and isinstance(row.message, Train)
        for trainee in row.message.trainees
    )


def _may_train(state: ControllerState, learner: Learner, population: str) -> bool:
    """Return whether a learner serves a population, and those of its mates."""
    # A team has a policy of every population.
    return all(map(learner.may_train, state.setup.populations if state.teams else [population]))


def _is_left_to_faster(
    state: ControllerState, tx: Transaction, learner: Learner, team: Team
) -> bool:
    """Return whether a learner leaves a policy that is far behind to a clearly faster one.

    It is free only until its learner asks again. With as many learners as policies it would stay
    with the slowest one, and all others would wait for it at the end of the run.
    """
    policy = team[0]
    population = policy.population
    fastest = max(
        (other for other in state.learners.values() if _may_train(state, other, population)),
        key=lambda other: other.speeds.get(population, 0.0),
        # Any learner makes initial weights, also where none that trains them has joined yet.
        default=learner,
    )
    speed = learner.speeds.get(population, 0.0)
    # In deterministic mode measured times must decide nothing.
    if state.config.deterministic or speed >= CLEARLY * fastest.speeds.get(population, 0.0):
        return False
    others = (
        row.agent_steps
        for row in state.tables.policies.values()
        if row.population == population and row.state == "active" and row is not policy
    )
    lead = min(others, default=policy.agent_steps) - policy.agent_steps
    return lead > carried_episodes.MAX_LEAD_ASSIGNMENTS * budget(state, tx, policy, learner=fastest)


@dataclass(frozen=True, slots=True, kw_only=True)
class FreePolicies:
    """Policies that are free to train on a learner, and how they form teams.

    With ``matchmaking.rivals: learning`` that is one of each population, if neither is far ahead:
    the side with fewer agents trains alone in between, or it would have trained less at the end.

    Attributes:
        state: State of the controller.
        held_up: Policies that cannot be trained because of a mate.
        may_train: Function that says whether a population may be trained.
        max_lead: Agent steps by which one of two rivals may be ahead.
    """

    state: ControllerState
    held_up: Set[PolicyId]
    may_train: Callable[[str], bool]
    max_lead: int

    def team_with(self, policy: PolicyRow) -> Team:
        """Return all that learn in the next assignment of a free policy.

        The rival is the free policy of the other population that has trained least.

        Returns:
            The policy and its mates or its rival. Empty: it waits for a rival that trains alone.
        """
        state = self.state
        if state.config.matchmaking.rivals == "frozen" or policy.checkpoint is None:
            return team_of(state, policy)
        (other,) = (name for name in state.setup.populations if name != policy.population)
        if not self.may_train(other):
            return (policy,)
        limit = state.config.stop.agent_steps_per_policy
        rival = state.training_queue.next_of(other, state.tables, held_up=self.held_up, limit=limit)
        if rival is not None and self._are_near(policy, rival):
            rows = {row.population: row for row in (policy, rival)}
            return tuple(rows[name] for name in state.setup.populations)
        # Without that, two that were parted once would train alone by turns from then on.
        alone = (row for row in _training_alone(state) if row.population == other)
        if any(row.agent_steps <= policy.agent_steps + self.max_lead for row in alone):
            return ()
        return (policy,)

    def may_learn(self, team: Team) -> bool:
        """Return whether a team may learn now that has done so before."""
        if not self._is_free(team[0]):
            return False
        if self.state.config.matchmaking.rivals == "frozen" or len(team) == 1:
            return self.team_with(team[0]) == team
        # Not only with the rival that comes next, as episodes go on with this one alone.
        first, second = team
        return self._is_free(second) and self._are_near(first, second)

    def _is_free(self, row: PolicyRow) -> bool:
        limit = self.state.config.stop.agent_steps_per_policy
        return self.state.training_queue.is_free(row, held_up=self.held_up, limit=limit)

    def _are_near(self, first: PolicyRow, second: PolicyRow) -> bool:
        return abs(first.agent_steps - second.agent_steps) <= self.max_lead


def _training_alone(state: ControllerState) -> Iterator[PolicyRow]:
    """Yield the policies that are the only trainees of open assignments."""
    for row in state.tables.assignments.values():
        if isinstance(row.message, Train) and len(row.message.trainees) == 1:
            yield state.tables.policies[row.message.trainees[0].policy]
