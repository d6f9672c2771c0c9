"""Placement: which learner gets which job.

`fill` goes through the free learners, the one with the most credit first. Each gets an assignment
that was lost, failed or left open; else an evaluation, if evaluation is short of its share; else
training of the team that has trained least. A learner leaves a job that another one does better.

Tests: `tests/populations/controller/assignments/test_placement.py`, and `test_next_team.py`,
`test_prices.py` and `test_carried_episodes.py` beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from functools import partial

from msgspec.structs import replace

from arena.types import AssignmentId, LearnerId, PolicyId, Seating, policy_of_trainee, population_of
from arena.wire.messages import Evaluate, Train
from populations.config.message_sizes import fitted
from populations.config.run_config import RunConfig
from populations.controller.assignments import jobs
from populations.controller.assignments.jobs import budget, holder_of, usual_budget
from populations.controller.evaluation import share
from populations.controller.evaluation.finals import more_pairings
from populations.controller.evaluation.pairings import draw_pairings, is_worth_it
from populations.controller.evolution.exploring import are_open
from populations.controller.indexes.teams import Team, held_up, team_of
from populations.controller.lineups import Requests, knowledge
from populations.controller.state.epoch import Settings
from populations.controller.state.leases import (
    QUEUED_PER_LEARNER,
    Crew,
    HeldAssignment,
    Learner,
    Pause,
)
from populations.controller.state.ledger import Ledger
from populations.controller.state.pauses import may_give
from populations.controller.state.state import ControllerState
from populations.controller.state.transaction import Transaction
from populations.league.league import League
from populations.records.rows import AssignmentRow, Json, PolicyRow
from populations.records.tables import Tables

CLEARLY = 0.8
"""Ratio of two measurements below which the first counts as clearly less. Measurements of equal
learners differ by about a tenth from one assignment to the next."""

MAX_LEAD_ASSIGNMENTS = 4
"""Assignments by which a policy may fall behind while it is left to another learner."""


def fill(state: ControllerState, tx: Transaction) -> None:
    """Give assignments to the learners with credit, as long as there are any to give."""
    if state.phase.name not in ("training", "evaluating"):
        return
    # In deterministic mode each decision waits for all earlier results, ratings included.
    waits = (
        state.fits.running
        or state.fits.are_stale()
        or are_open(state.tables, state.indexes.members, state.phase)
    )
    if state.settings.config.deterministic and (waits or state.crew.holders):
        return
    free = {
        learner_id: learner
        for learner_id, learner in state.crew.learners.items()
        if len(learner.held) < learner.credit
    }
    if not free:
        return
    # Assignments that were lost, failed, or left open by the previous epoch go out first.
    unheld = sorted(
        assignment_id
        for assignment_id in state.tables.assignments.keys() - state.crew.holders.keys()
        if state.phase.is_for_now(state.tables.assignments[assignment_id])
    )
    # ``idle`` are sets of populations without a job, so learners that serve these are skipped.
    # ``content`` are single learners that leave the present jobs to others.
    idle: set[tuple[str, ...]] = set()
    content: set[LearnerId] = set()
    while (
        may_give(state.crew.learners, state.blame.pause)
        and (learner_id := _next_learner(state.tables, state.blame.pause, free, idle)) is not None
    ):
        learner = free[learner_id]
        job = _again(state, learner_id, unheld, content) or _decide(state, tx, learner_id, content)
        if job is not None:
            _give(state, tx, learner_id, *job)
        elif learner_id not in content:
            idle.add(learner.hello.populations)
        if len(learner.held) >= learner.credit or (job is None and learner_id in content):
            del free[learner_id]
        if job is not None and state.settings.config.deterministic:
            # Only one assignment is open at a time, so that each decision knows earlier results.
            return


def _next_learner(
    tables: Tables,
    pause: Pause | None,
    free: Mapping[LearnerId, Learner],
    idle: Set[tuple[str, ...]],
) -> LearnerId | None:
    """Return the free learner with the most credit that serves a population with jobs; or None.

    In a pause, learners come first whose place has not failed, then those whose failure is oldest.
    If the same one were tried each time, a run could end although others can work.
    """
    failed_s = {} if pause is None else pause.failed_s
    # A learner without training comes first. If a policy were queued behind another one, a learner
    # could be left without any. The id comes last, so that the order of equal learners is fixed.
    ranked = (
        (
            failed_s.get(learner.place, -math.inf),
            len(_trainings(tables, learner)),
            len(learner.held),
            learner_id,
        )
        for learner_id, learner in free.items()
        if learner.hello.populations not in idle
    )
    return min(ranked, default=(0.0, 0, 0, None))[-1]


def _trainings(tables: Tables, learner: Learner) -> list[Train]:
    """Return the training assignments that a learner has."""
    rows = [tables.assignments.get(held.assignment_id) for held in learner.held]
    return [row.message for row in rows if row is not None and isinstance(row.message, Train)]


def _again(
    state: ControllerState,
    learner_id: LearnerId,
    unheld: list[AssignmentId],
    content: set[LearnerId],
) -> jobs.Job | None:
    """Remove from ``unheld`` and return the oldest assignment that a learner may do; or None.

    An assignment that failed in the learner's place is left to other places, if any can do it.
    """
    learner = state.crew.learners[learner_id]
    for assignment_id in unheld:
        row = state.tables.assignments[assignment_id]
        if not serves(learner.hello.populations, row):
            continue
        # It failed in this place, and a try in another one shows whether this place is at fault.
        failed_at = state.blame.ledger.places_of(assignment_id)
        if learner.place in failed_at and any(
            place not in failed_at for place in able_places(state.crew, row, without=learner.place)
        ):
            content.add(learner_id)
            continue
        unheld.remove(assignment_id)
        return row.message, {}
    return None


def serves(populations: Collection[str], row: AssignmentRow) -> bool:
    """Return whether a learner that serves ``populations`` (empty: all) may do an assignment.

    Any learner may evaluate or make initial weights.
    """
    message = row.message
    if not populations or not isinstance(message, Train) or message.agent_steps == 0:
        return True
    return all(population_of(trainee.policy) in populations for trainee in message.trainees)


def able_places(crew: Crew, row: AssignmentRow, *, without: str) -> Iterator[str]:
    """Yield places, except one, whose present or expected learner may do an assignment."""
    for other in crew.learners.values():
        if other.place != without and serves(other.hello.populations, row):
            yield other.place
    for place, slot in crew.coming():
        if place != without and serves(slot.populations, row):
            yield place


def _give(
    state: ControllerState,
    tx: Transaction,
    learner_id: LearnerId,
    message: Train | Evaluate,
    requests: Requests,
) -> None:
    learner, now_s = state.crew.learners[learner_id], tx.now.monotonic_s
    row = state.tables.assignments.get(message.assignment_id)
    if row is None:
        # An assignment too large to send is not journaled, as each resume would send it again.
        message = fitted(message, setup=state.settings.setup)
        row = AssignmentRow(
            assignment_id=message.assignment_id,
            kind="train" if isinstance(message, Train) else "evaluate",
            message=message,
            metrics={},
        )
        tx.count(next_assignment=1)
    # A new attempt number begins a new lease, so results of earlier attempts are not accepted.
    attempt = row.attempt + 1
    message = replace(message, attempt=attempt)
    tx.put(replace(row, attempt=attempt, message=message))
    learner.held.append(
        HeldAssignment(
            assignment_id=row.assignment_id, attempt=attempt, given_s=now_s, sent_s=now_s
        )
    )
    state.crew.holders[row.assignment_id] = learner_id
    if state.blame.pause is not None:
        state.blame.pause.failed_s[learner.place] = now_s
    tx.send(learner_id, message)
    who = {"learner": learner_id, "slot": learner.slot, "attempt": attempt}
    _explain(state, tx, message, requests, who)


def _explain(
    state: ControllerState,
    tx: Transaction,
    message: Train | Evaluate,
    requests: Requests,
    who: Mapping[str, str | int | None],
) -> None:
    if isinstance(message, Train):
        tx.add_event(
            # An assignment without agent steps only makes initial weights.
            "train_assigned" if message.agent_steps else "start_assigned",
            str(message.assignment_id),
            **who,
            policies=[trainee.policy for trainee in message.trainees],
            generation=[trainee.generation for trainee in message.trainees],
            agent_steps=message.agent_steps,
            episodes=message.episodes,
            carried=len(message.carried),
            opponents=_names(message.opponents),
            **knowledge(state.settings, state.indexes, message, requests),
        )
    else:
        tx.add_event(
            "evaluation_assigned",
            str(message.assignment_id),
            **who,
            pairings=_names(pairing.seating for pairing in message.pairings),
            matches=sum(pairing.num_matches for pairing in message.pairings),
        )


def _names(seatings: Iterable[Seating]) -> list[Json]:
    return [[player.player for player in seating.players] for seating in seatings]


def _decide(
    state: ControllerState, tx: Transaction, learner_id: LearnerId, content: set[LearnerId]
) -> jobs.Job | None:
    """Make a new assignment for a learner, or None if there is nothing for it to do now.

    Args:
        state: State of the controller.
        tx: Transaction that takes the rows.
        learner_id: The learner.
        content: Set to which the learner is added if it leaves the present jobs to others.
    """
    learner, config = state.crew.learners[learner_id], state.settings.config
    if state.phase.name == "evaluating":
        return jobs.evaluation(config, state.tables, more_pairings(state, tx, learner))
    # A learner that has an evaluation trains next, because a second evaluation would only wait
    # behind the first one.
    num_evaluations = len(learner.held) - len(_trainings(state.tables, learner))
    trains_first = num_evaluations > 0 or is_left_to_cheaper(
        config,
        state.crew.learners,
        learner,
        share.short_of(state.measured, state.indexes.pending_matches, state.crew),
    )
    job = None if trains_first else _evaluation_if_due(state, tx, learner)
    if job is not None:
        return job
    team = next_team(state, tx, learner_id)
    if team is None:
        content.add(learner_id)
    elif team:
        return jobs.training(state, tx, learner_id, team)
    return _evaluation_if_due(state, tx, learner) if trains_first else None


def _evaluation_if_due(
    state: ControllerState, tx: Transaction, learner: Learner
) -> jobs.Job | None:
    """Make an evaluation if evaluation is short of its share; None: it is not, or nothing to play.

    Evaluation may exceed its share by the time of one training assignment, but not by more.
    """
    config, ledger = state.settings.config, state.blame.ledger
    pending = state.indexes.pending_matches
    if config.evaluation.share <= 0.0:
        return None
    short = share.short_of(state.measured, pending, state.crew)
    # While evaluations fail, only one is open at a time, so that it shows whose fault it is, and
    # they become ever rarer.
    is_open = ledger.failed_evaluations and pending.num_open
    if short <= 0.0 or is_open or ledger.evaluation_waits:
        return None
    one_s = share.match_s(state.measured, learner)
    num_matches = share.earned_matches(state.settings, one_s, short)
    if not is_worth_it(state, learner, num_matches=num_matches):
        return None
    # The draw comes after all reasons to wait, because it takes a decision number.
    pairings = draw_pairings(state, tx, num_matches=num_matches)
    return jobs.evaluation(config, state.tables, pairings)


def is_left_to_cheaper(
    config: RunConfig, learners: Mapping[LearnerId, Learner], learner: Learner, short_s: float
) -> bool:
    """Return whether a learner leaves a due evaluation to one that loses less training by it."""
    # Measured times must decide nothing in deterministic mode.
    if config.deterministic:
        return False
    # The cheaper learner first ends its running and queued assignments. If evaluation lacks more
    # time than these take, the cheaper learners cannot keep up, or are stuck.
    patience_s = (1 + QUEUED_PER_LEARNER) * config.assignment.target_s
    return 0.0 < short_s < patience_s and any(
        is_cheaper(other, learner) for other in learners.values()
    )


def is_cheaper(other: Learner, learner: Learner) -> bool:
    """Return whether training loses clearly less by evaluation on another learner.

    It must lose less for each match and also for each second: evaluation's share is of seconds, so
    many quick matches on the fastest trainer would cost more training. False for learners that have
    not trained a common population, or have not evaluated yet.
    """
    match_s, other_match_s = learner.match_times.match_s, other.match_times.match_s
    common = learner.speeds.keys() & other.speeds.keys()
    if match_s is None or other_match_s is None or not common:
        return False
    # At a speed of v agent steps per second, a second costs v steps and a match of t seconds t v.
    speed = sum(learner.speeds[name] for name in common)
    other_speed = sum(other.speeds[name] for name in common)
    return CLEARLY * other_speed < speed and other_match_s * other_speed < CLEARLY * match_s * speed


def next_team(state: ControllerState, tx: Transaction, learner_id: LearnerId) -> Team | None:
    """Choose the free policy that has trained least, with all policies that learn beside it.

    A policy whose episodes another learner holds is left to that learner, unless it falls behind. A
    policy with a pending decision of PBT is not free, nor is one with a teammate that is not.

    Returns:
        The team; empty: there is nothing to train; None: the free ones are left to other learners.
    """
    learner, config = state.crew.learners[learner_id], state.settings.config
    queue = state.indexes.training_queue
    turn = population_in_turn(state.settings, state.tables)

    def may_train(population: str) -> bool:
        return turn in (None, population) and _may_train(state.league, learner, population)

    blocked = held_up(state.league)
    waiting = blocked | _waiting(state.league, state.blame.ledger)
    # Initial checkpoints come first, so that each population always has a frozen player. A policy
    # that failed waits for others to train, which shows whether it is to blame.
    first = queue.next(held_up=waiting, may_train=may_train)
    if first is not None or _others_train(state.tables, state.crew.learners, waiting):
        blocked = waiting
    elif waiting != blocked:
        first = queue.next(held_up=blocked, may_train=may_train)
    if first is None:
        return ()
    # Budgets of whole episodes have no bound in steps, so the interval of ghosts bounds the lead.
    usual = usual_budget(config, state.tables, first, learner=learner)
    max_lead = min(usual, config.ghosts.every_agent_steps)
    with_mates = partial(team_with, state, held_up=blocked, may_train=may_train, max_lead=max_lead)
    team = with_mates(first)
    if not team:
        return ()
    if _is_left_to_faster(state, tx, learner, team):
        return None
    if holder_of(config, state.tables, state.crew, team) in (None, learner_id):
        return team

    def may_go_on(known: Team) -> bool:
        policy, *others = known
        if turn not in (None, policy.population) or not queue.is_free(policy, held_up=blocked):
            return False
        if config.matchmaking.rivals == "frozen" or not others:
            return with_mates(policy) == known
        # The rival need not be the next in the queue, because these episodes go on only with it.
        (rival,) = others
        lead = abs(policy.agent_steps - rival.agent_steps)
        return queue.is_free(rival, held_up=blocked) and lead <= max_lead

    behind = MAX_LEAD_ASSIGNMENTS * budget(state, tx, first, learner=learner)
    return _instead_of(state, learner_id, team, behind=behind, may_go_on=may_go_on)


def _instead_of(
    state: ControllerState,
    learner_id: LearnerId,
    first: Team,
    *,
    behind: int,
    may_go_on: Callable[[Team], bool],
) -> Team | None:
    """Choose what a learner trains if another learner holds the episodes of the first team.

    Args:
        state: State of the controller.
        learner_id: The learner.
        first: Team of the free policy that has trained least.
        behind: Agent steps by which the first team may be behind.
        may_go_on: Function that says whether a team that has learned together may do so again.

    Returns:
        A team whose episodes this learner holds, or the first team if it is too far behind. None:
        the first team is left to the other learner.
    """
    policies = state.tables.policies
    here = dict.fromkeys(
        one.team for one in state.crew.episodes.values() if one.learner == learner_id
    )
    held = (tuple(policies[policy] for policy in team) for team in here)
    own = [team for team in held if may_go_on(team)]
    at_work = [
        tuple(policies[trainee.policy] for trainee in message.trainees)
        for message in _trainings(state.tables, state.crew.learners[learner_id])
    ]
    ahead = min(map(_least_trained, own or at_work), default=None)
    if ahead is None or _least_trained(first)[0] + behind < ahead[0]:
        # The learner has nothing to compare with, or the first team is too far behind: it trains
        # here and begins its episodes anew.
        return first
    return min(own, key=_least_trained, default=None)


def _least_trained(team: Team) -> tuple[int, int]:
    """Return (agent steps, index) of the policy in a team that has trained least."""
    return min((row.agent_steps, row.index) for row in team)


def _waiting(league: League, ledger: Ledger) -> Set[PolicyId]:
    """Return the policies that wait for others to train first, because they failed."""
    waiting = set()
    # The loop is over suspects, which are few, instead of all policies, which may be thousands.
    for name in ledger.suspects():
        policy, generation = policy_of_trainee(name)
        row = league.tables.policies[policy]
        if row.generation == generation and ledger.waits(name, is_evaluation=False):
            waiting |= {mate.policy for mate in team_of(league, row)}
    return waiting


def _others_train(
    tables: Tables, learners: Mapping[LearnerId, Learner], waiting: Set[PolicyId]
) -> bool:
    """Return whether any policy that is not in ``waiting`` trains now."""
    return bool(waiting) and any(
        trainee.policy not in waiting
        for learner in learners.values()
        for message in _trainings(tables, learner)
        for trainee in message.trainees
    )


def _may_train(league: League, learner: Learner, population: str) -> bool:
    """Return whether a learner may train a population and those of its teammates."""
    # A team has a policy of every population, so the learner must serve all of them.
    populations = {seat.population for seat in league.seats} if league.teams else {population}
    return all(map(learner.may_train, populations))


def population_in_turn(settings: Settings, tables: Tables) -> str | None:
    """Return the one population that may learn now; None: all may.

    With ``matchmaking.learning_side_turns`` each policy does ``every_agent_steps`` in a turn of its
    population. The population with the fewest whole turns comes next; among equals, the first in
    the configuration. Turns follow from agent steps, so they are not stored.

    Source: ``team_change`` of Unity ML-Agents' self-play.
    """
    turns = settings.config.matchmaking.learning_side_turns
    if turns is None:
        return None
    limit = settings.config.stop.agent_steps_per_policy
    least: dict[str, int] = {}
    for row in tables.policies.values():
        # A policy that trains no more, or has reached its limit, must not keep the turn.
        if row.state == "active" and (limit is None or row.agent_steps < limit):
            least[row.population] = min(row.agent_steps, least.get(row.population, row.agent_steps))
    order = {name: index for index, name in enumerate(settings.setup.populations)}
    return min(
        least, key=lambda name: (least[name] // turns.every_agent_steps, order[name]), default=None
    )


def _is_left_to_faster(
    state: ControllerState, tx: Transaction, learner: Learner, team: Team
) -> bool:
    """Return whether a learner leaves a policy that is far behind to a clearly faster learner.

    Otherwise, with as many learners as policies, the slowest learner would train the same policy
    again and again, and all others would wait for this policy at the end of the run.
    """
    policy = team[0]
    population = policy.population

    def speed_of(other: Learner) -> float:
        return other.speeds.get(population, 0.0)

    others = state.crew.learners.values()
    able = (other for other in others if _may_train(state.league, other, population))
    # No able learner may have joined yet, as any learner may make initial weights.
    fastest = max(able, key=speed_of, default=learner)
    # Measured times must decide nothing in deterministic mode.
    is_close = speed_of(learner) >= CLEARLY * speed_of(fastest)
    if state.settings.config.deterministic or is_close:
        return False
    steps = (
        row.agent_steps
        for row in state.tables.policies.values()
        if row.population == population and row.state == "active" and row is not policy
    )
    lead = min(steps, default=policy.agent_steps) - policy.agent_steps
    return lead > MAX_LEAD_ASSIGNMENTS * budget(state, tx, policy, learner=fastest)


def team_with(
    state: ControllerState,
    policy: PolicyRow,
    *,
    held_up: Set[PolicyId],
    may_train: Callable[[str], bool],
    max_lead: int,
) -> Team:
    """Return all policies that learn in the next assignment of a free policy.

    With ``matchmaking.rivals: learning`` that is one of each population, if neither is far ahead.
    The rival is the free policy of the other population that has trained least. The side with fewer
    agents gets fewer steps, so now and then it trains alone to catch up.

    Args:
        state: State of the controller.
        policy: The policy.
        held_up: Policies that cannot train because of a teammate.
        may_train: Function that says whether a population may be trained.
        max_lead: Agent steps by which one of two rivals may be ahead.

    Returns:
        The policy with its teammates or its rival. Empty: it waits for a rival that trains alone.
    """
    if state.settings.config.matchmaking.rivals == "frozen" or policy.checkpoint is None:
        return team_of(state.league, policy)
    names = state.settings.setup.populations
    (other,) = (name for name in names if name != policy.population)
    if not may_train(other):
        return (policy,)
    rival = state.indexes.training_queue.next_of(other, held_up=held_up)
    if rival is not None and abs(policy.agent_steps - rival.agent_steps) <= max_lead:
        rows = {row.population: row for row in (policy, rival)}
        return tuple(rows[name] for name in names)
    # Without this wait, two rivals that trained alone once would do so by turns from then on.
    alone = (
        state.tables.policies[row.message.trainees[0].policy]
        for row in state.tables.assignments.values()
        if isinstance(row.message, Train) and len(row.message.trainees) == 1
    )
    is_awaited = any(
        row.population == other and row.agent_steps <= policy.agent_steps + max_lead
        for row in alone
    )
    return () if is_awaited else (policy,)
