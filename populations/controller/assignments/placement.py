"""Placement: which learner gets which job.

`fill` asks for the free learners one after the other, the one with the most credit first. Each gets
an assignment that was lost, failed or left; else an evaluation, if that is short of its share; else
the team that has trained least. A job that another learner does better is left to that one.

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
"""Ratio of two measurements below which one is taken for less: those of equal learners differ by
about a tenth from one assignment to the next."""

MAX_LEAD_ASSIGNMENTS = 4
"""Assignments by which a policy that is left to another learner may fall behind."""


def fill(state: ControllerState, tx: Transaction) -> None:
    """Give every learner with credit something to do, as long as there is something."""
    if state.phase.name not in ("training", "evaluating"):
        return
    # In deterministic mode each decision knows all results before it, so it waits for ratings.
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
    # Lost, failed, or left by the epoch before: they go out again, the oldest first.
    unheld = sorted(
        assignment_id
        for assignment_id in state.tables.assignments.keys() - state.crew.holders.keys()
        if state.phase.is_for_now(state.tables.assignments[assignment_id])
    )
    # What there is to do depends on the populations that a learner serves, but for those learners
    # that leave a policy to the one that holds its episodes.
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
            # One assignment is open at a time, so that each decision knows all earlier results.
            return


def _next_learner(
    tables: Tables,
    pause: Pause | None,
    free: Mapping[LearnerId, Learner],
    idle: Set[tuple[str, ...]],
) -> LearnerId | None:
    """Return the learner with the most credit, of those that have any.

    Not one of those that serve populations for which there is nothing to do. In a pause those come
    first that have not failed, then those that have not for longest: with the same one each time a
    run would end in which others can work.
    """
    failed_s = {} if pause is None else pause.failed_s
    # A learner that only evaluates comes first: with no more policies than learners, a policy that
    # is queued where another one trains would be missing where nobody trains. The id is last, so
    # that equal learners come in one order.
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
    """Take out the oldest open assignment that nobody has and a learner may do.

    One that failed on the learner is left to others.
    """
    learner = state.crew.learners[learner_id]
    for assignment_id in unheld:
        row = state.tables.assignments[assignment_id]
        if not serves(learner.hello.populations, row):
            continue
        # It failed here; another place will tell whose fault that was.
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
    """Return whether a learner of some populations (empty: all) may do an assignment.

    Any learner may evaluate, and make initial weights.
    """
    message = row.message
    if not populations or not isinstance(message, Train) or message.agent_steps == 0:
        return True
    return all(population_of(trainee.policy) in populations for trainee in message.trainees)


def able_places(crew: Crew, row: AssignmentRow, *, without: str) -> Iterator[str]:
    """Yield places of other learners, there or coming, that may do an assignment."""
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
        # Nothing is journaled that cannot be sent: each resume would try to send it again.
        message = fitted(message, setup=state.settings.setup)
        row = AssignmentRow(
            assignment_id=message.assignment_id,
            kind="train" if isinstance(message, Train) else "evaluate",
            message=message,
            metrics={},
        )
        tx.count(next_assignment=1)
    # A lease of its own: a result of an earlier attempt no longer fits.
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
            # Any learner may make initial weights.
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
        content: Takes the learner in if what there is to do is left to others.
    """
    learner, config = state.crew.learners[learner_id], state.settings.config
    if state.phase.name == "evaluating":
        return jobs.evaluation(config, state.tables, more_pairings(state, tx, learner))
    # A second evaluation of one learner comes after a policy: that would wait behind another one.
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
    """Make an evaluation if there is less than its share; None: it has that, or nothing to play.

    What its share has not earned yet, not even with the time of a training assignment ahead, waits.
    """
    config, ledger = state.settings.config, state.blame.ledger
    pending = state.indexes.pending_matches
    if config.evaluation.share <= 0.0:
        return None
    short = share.short_of(state.measured, pending, state.crew)
    # One evaluation is open at a time while they fail, so that it is known whose fault it is, and
    # ever fewer are tried.
    is_open = ledger.failed_evaluations and pending.num_open
    if short <= 0.0 or is_open or ledger.evaluation_waits:
        return None
    one_s = share.match_s(state.measured, learner)
    num_matches = share.earned_matches(state.settings, one_s, short)
    if not is_worth_it(state, learner, num_matches=num_matches):
        return None
    # Draw after all reasons to wait, because a draw takes a decision number.
    pairings = draw_pairings(state, tx, num_matches=num_matches)
    return jobs.evaluation(config, state.tables, pairings)


def is_left_to_cheaper(
    config: RunConfig, learners: Mapping[LearnerId, Learner], learner: Learner, short_s: float
) -> bool:
    """Return whether a learner leaves evaluation that is due to one where it costs less."""
    # Measured times must decide nothing in deterministic mode.
    if config.deterministic:
        return False
    # A learner's running and queued work come before an evaluation that it takes next: if more time
    # than that is lacking, those that are cheaper do not keep up, or are stuck.
    patience_s = (1 + QUEUED_PER_LEARNER) * config.assignment.target_s
    return 0.0 < short_s < patience_s and any(
        is_cheaper(other, learner) for other in learners.values()
    )


def is_cheaper(other: Learner, learner: Learner) -> bool:
    """Return whether training loses clearly less by evaluation on another learner.

    Less for each match, and no more for each second: evaluation's share is of seconds, so that many
    quick matches in the time of the fastest learner would cost more training than before. Learners
    that have not trained the same population, or not evaluated yet, are not compared.
    """
    match_s, other_match_s = learner.match_times.match_s, other.match_times.match_s
    common = learner.speeds.keys() & other.speeds.keys()
    if match_s is None or other_match_s is None or not common:
        return False
    # Agent steps lost by a second: v; by a match of t seconds: t v
    speed = sum(learner.speeds[name] for name in common)
    other_speed = sum(other.speeds[name] for name in common)
    return CLEARLY * other_speed < speed and other_match_s * other_speed < CLEARLY * match_s * speed


def next_team(state: ControllerState, tx: Transaction, learner_id: LearnerId) -> Team | None:
    """Choose the policy that has trained least, of those free to train, and all that learn with it.

    One whose episodes another learner holds is left to that one, unless it falls behind. A policy
    with a pending decision of PBT is not free, nor is one whose mate is not.

    Returns:
        Empty: there is nothing to train. None: what there is is left to other learners.
    """
    learner, config = state.crew.learners[learner_id], state.settings.config
    queue = state.indexes.training_queue
    turn = population_in_turn(state.settings, state.tables)

    def may_train(population: str) -> bool:
        return turn in (None, population) and _may_train(state.league, learner, population)

    blocked = held_up(state.league)
    waiting = blocked | _waiting(state.league, state.blame.ledger)
    # Initial checkpoints come first, so that each population always has a frozen player. A policy
    # that fails lets others train first; they show if it is to blame.
    first = queue.next(held_up=waiting, may_train=may_train)
    if first is not None or _others_train(state.tables, state.crew.learners, waiting):
        blocked = waiting
    elif waiting != blocked:
        first = queue.next(held_up=blocked, may_train=may_train)
    if first is None:
        return ()
    # Whole episodes have no bound in steps; a rival is then no further ahead than a ghost is old.
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
        # Any free rival will do here, not only the one that comes next: episodes go on with this
        # one alone.
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
    """Choose what a learner trains in place of the first team, whose episodes another one holds.

    Args:
        state: State of the controller.
        learner_id: The learner.
        first: Team of the policy that has trained least, of those that are free.
        behind: Agent steps by which that may be behind.
        may_go_on: Whether a team that has learned together is free, and may do so again.

    Returns:
        A team whose episodes the learner holds; the first one if it is far behind. None: the first
        one is left to its holder.
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
        # Nothing else to do here, or too long not trained: it begins its episodes anew.
        return first
    return min(own, key=_least_trained, default=None)


def _least_trained(team: Team) -> tuple[int, int]:
    """Return agent steps and index of the policy of a team that has trained least."""
    return min((row.agent_steps, row.index) for row in team)


def _waiting(league: League, ledger: Ledger) -> Set[PolicyId]:
    """Return policies that let others train first, because they failed."""
    waiting = set()
    # Few have failed, also where there are thousands of policies.
    for name in ledger.suspects():
        policy, generation = policy_of_trainee(name)
        row = league.tables.policies[policy]
        if row.generation == generation and ledger.waits(name, is_evaluation=False):
            waiting |= {mate.policy for mate in team_of(league, row)}
    return waiting


def _others_train(
    tables: Tables, learners: Mapping[LearnerId, Learner], waiting: Set[PolicyId]
) -> bool:
    """Return whether policies that do not wait are in training."""
    return bool(waiting) and any(
        trainee.policy not in waiting
        for learner in learners.values()
        for message in _trainings(tables, learner)
        for trainee in message.trainees
    )


def _may_train(league: League, learner: Learner, population: str) -> bool:
    """Return whether a learner serves a population, and those of its mates."""
    # A team has a policy of every population.
    populations = {seat.population for seat in league.seats} if league.teams else {population}
    return all(map(learner.may_train, populations))


def population_in_turn(settings: Settings, tables: Tables) -> str | None:
    """Return the one population that may learn now; None: all may.

    With ``matchmaking.learning_side_turns`` each policy does ``every_agent_steps`` in a turn of its
    population. That with the fewest whole turns comes next, of equals the first in the
    configuration. It follows from agent steps alone, so nothing is saved. Source: ``team_change``
    of Unity ML-Agents' self-play.
    """
    turns = settings.config.matchmaking.learning_side_turns
    if turns is None:
        return None
    limit = settings.config.stop.agent_steps_per_policy
    least: dict[str, int] = {}
    for row in tables.policies.values():
        # One that has reached its limit, or never trains again, must not hold the turn.
        if row.state == "active" and (limit is None or row.agent_steps < limit):
            least[row.population] = min(row.agent_steps, least.get(row.population, row.agent_steps))
    order = {name: index for index, name in enumerate(settings.setup.populations)}
    return min(
        least, key=lambda name: (least[name] // turns.every_agent_steps, order[name]), default=None
    )


def _is_left_to_faster(
    state: ControllerState, tx: Transaction, learner: Learner, team: Team
) -> bool:
    """Return whether a learner leaves a policy that is far behind to a clearly faster one.

    It is free only until its learner asks again. With as many learners as policies it would stay
    with the slowest one, and all others would wait for it at the end of the run.
    """
    policy = team[0]
    population = policy.population

    def speed_of(other: Learner) -> float:
        return other.speeds.get(population, 0.0)

    others = state.crew.learners.values()
    able = (other for other in others if _may_train(state.league, other, population))
    # Any learner makes initial weights, also where none that trains them has joined yet.
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
    """Return all that learn in the next assignment of a free policy.

    With ``matchmaking.rivals: learning`` that is one of each population, if neither is far ahead:
    the side with fewer agents trains alone in between, or it would have trained less at the end.
    The rival is the free policy of the other population that has trained least.

    Args:
        state: State of the controller.
        policy: The policy.
        held_up: Policies that cannot be trained because of a mate.
        may_train: Function that says whether a population may be trained.
        max_lead: Agent steps by which one of two rivals may be ahead.

    Returns:
        The policy and its mates or its rival. Empty: it waits for a rival that trains alone.
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
    # Two that were parted once would otherwise train alone by turns from then on.
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
