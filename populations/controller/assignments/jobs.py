"""Jobs: the assignments that learners are given, as messages.

A job has a budget of agent steps, and may go on with episodes that a learner holds. Episodes live
in the learner's memory, so after a crash they begin anew. They go on only on the learner that holds
them, and only with the weights that they were played with.

Tests: `tests/populations/controller/assignments/test_placement.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from arena.types import MAX_GAMES, AssignmentId, LearnerId, PolicyId, WeightsRef
from arena.wire.messages import Evaluate, Finished, Pairing, Train, Trainee
from populations.config.run_config import RunConfig
from populations.controller.assignments.validation import entrants_of
from populations.controller.evolution.snapshots import steps_to_next
from populations.controller.indexes.teams import Team
from populations.controller.lineups import Lineup, Requests, draw_lineup
from populations.controller.state.epoch import Settings
from populations.controller.state.leases import CarriedEpisodes, Crew, Learner
from populations.controller.state.state import ControllerState
from populations.controller.state.transaction import Transaction
from populations.pbt.scheduler import next_mark
from populations.records.rows import PolicyRow
from populations.records.tables import Tables
from populations.storage.store import Retention

Job = tuple[Train | Evaluate, Requests]
"""Assignment, and the requests to the matchmaker that its opponents were drawn for."""


def training(state: ControllerState, tx: Transaction, learner_id: LearnerId, team: Team) -> Job:
    """Make a training assignment of a team, or one for the initial weights that it still lacks."""
    # Weights that do not exist yet cannot learn or be seated, so they are made and published first.
    starting = tuple(row for row in team if row.checkpoint is None)
    lineup = Lineup(trainees=starting, requests={}) if starting else draw_lineup(state, tx, team)
    assignment_id = AssignmentId(state.tables.run.next_assignment)
    settings, crew = state.settings, state.crew
    holder = holder_of(settings.config, state.tables, crew, team)
    goes_on = not starting and holder == learner_id
    learner = crew.learners[learner_id]
    message = Train(
        assignment_id=assignment_id,
        attempt=0,
        trainees=tuple(_trainee(settings, state.tables, row) for row in lineup.trainees),
        opponents=lineup.seatings,
        carried=crew.episodes[team[0].policy].seatings if goes_on else (),
        agent_steps=0 if starting else team_budget(state, tx, team, learner=learner),
        episodes=settings.config.assignment.episodes,
        episode_length=state.measured.expected_length(team[0]),
        lesson=state.tables.run.lesson,
        seed=assignment_seed(settings.config, assignment_id),
        # A partial assignment depends on the learner's speed, which must decide nothing there.
        may_stop_early=not settings.config.deterministic,
    )
    return message, lineup.requests


def evaluation(config: RunConfig, tables: Tables, pairings: tuple[Pairing, ...]) -> Job | None:
    """Make an evaluation assignment of some pairings; None: there are no pairings."""
    if not pairings:
        return None
    assignment_id = AssignmentId(tables.run.next_assignment)
    message = Evaluate(
        assignment_id=assignment_id,
        attempt=0,
        pairings=pairings,
        seed=assignment_seed(config, assignment_id),
        # No more games are requested than the run retains.
        games=min(MAX_GAMES, config.replays.keep),
    )
    return message, {}


def assignment_seed(config: RunConfig, assignment_id: int) -> int:
    """Return the seed of an assignment, a function of the run's seed and its number."""
    # The run's seed has these streams: 0 decisions, 1 assignments, 2 restarts, 3 first
    # hyperparameters.
    words = np.random.SeedSequence([config.seed, 1, assignment_id]).generate_state(2)
    # The two words of 32 bits overlap in one bit, so the seed is below 2**63, as SQLite requires.
    return int(words[0]) << 31 ^ int(words[1])


def _trainee(settings: Settings, tables: Tables, policy: PolicyRow) -> Trainee:
    checkpoint = tables.checkpoints[policy.checkpoint] if policy.checkpoint is not None else None
    maker = None if checkpoint is None else checkpoint.policy
    return Trainee(
        policy=policy.policy,
        generation=policy.generation,
        agent_steps=policy.agent_steps,
        learner_updates=policy.learner_updates,
        checkpoint=checkpoint.ref if checkpoint is not None else None,
        donor=maker if maker != policy.policy else None,
        initial_weights=initial_weights(settings, tables, policy),
        hyperparameters=dict(policy.hyperparameters),
    )


def initial_weights(settings: Settings, tables: Tables, policy: PolicyRow) -> WeightsRef | None:
    """Return the weights that a policy without a checkpoint starts from; None: random ones."""
    key = policy.initial_weights
    # The key is empty after an immigration with random weights, and None at the population's start.
    if policy.checkpoint is not None or key == "":
        return None
    if key is None:
        return settings.initial_weights.get(policy.population)
    # A key after a reset may be the directory of a ghost of this run; other keys are imported.
    ghosts = tables.ghosts.values()
    own = next((ghost.weights for ghost in ghosts if ghost.key == key), None)
    return settings.immigrants[key] if own is None else own


FIXED_AGENT_STEPS = 16384
"""Budget in deterministic mode, where measured speed must not decide it."""

UNBOUNDED_AGENT_STEPS = 2**48
"""Budget of an assignment that ends by its number of episodes."""

MAX_DOUBLINGS = 12
"""Limit of a budget's doublings, from seconds to hours: longer episodes are not awaited."""


def team_budget(
    state: ControllerState, tx: Transaction, team: Sequence[PolicyRow], *, learner: Learner
) -> int:
    """Return a team's budget on a learner: the largest with which no policy exceeds its own.

    It is assumed that agents of all populations make decisions equally often.
    """
    agents = [len(state.settings.setup.populations[row.population].agents) for row in team]
    # With a team's budget B, a policy does B * own / sum(agents) steps, at most its own budget.
    return min(
        max(budget(state, tx, row, learner=learner) * sum(agents) // own, 1)
        for row, own in zip(team, agents, strict=True)
    )


def budget(state: ControllerState, tx: Transaction, policy: PolicyRow, *, learner: Learner) -> int:
    """Return a policy's budget: agent steps in the target time, but at most up to its next mark.

    The learner does whole rollouts, so it may do a little more.
    """
    config, run = state.settings.config, state.tables.run
    ends_at = _to_next_entry(state.settings, policy)
    wanted = usual_budget(config, state.tables, policy, learner=learner)
    if config.deterministic:
        return wanted if ends_at is None else min(wanted, ends_at)
    # The budget doubles with each assignment in which no episode ended, so that long episodes end
    # at last.
    doublings = min(state.blame.doublings[policy.policy], MAX_DOUBLINGS)
    stop = config.stop
    # A doubled budget ignores marks, because it is needed for episodes to end.
    if config.assignment.episodes is None:
        wanted = wanted << doublings if doublings else min([wanted, *_marks(config, policy)])
    speed = _speed(state.tables, policy, learner)
    # No budget exceeds the end of the run, even if it was doubled.
    if stop.duration_s is not None and speed > 0.0:
        left_s = max(stop.duration_s - state.phase.trained_s(tx.now, run), 0.0)
        wanted = min(wanted, int(speed * left_s))
    if stop.agent_steps_per_policy is not None and stop.agent_steps_per_policy > policy.agent_steps:
        wanted = min(wanted, stop.agent_steps_per_policy - policy.agent_steps)
    if stop.agent_steps is not None:
        wanted = min(wanted, stop.agent_steps - run.agent_steps)
    # Marks of schedules hold exactly, even if that makes an assignment very short.
    return max(wanted if ends_at is None else min(wanted, ends_at), 1)


def usual_budget(config: RunConfig, tables: Tables, policy: PolicyRow, *, learner: Learner) -> int:
    """Return the agent steps of an assignment in its target time, without regard to marks."""
    assignment = config.assignment
    # The assignment ends by its number of episodes instead.
    if assignment.episodes is not None:
        return UNBOUNDED_AGENT_STEPS
    if assignment.agent_steps is not None or config.deterministic:
        return assignment.agent_steps or FIXED_AGENT_STEPS
    # The budget is 0 before any speed is known: the learner does one rollout, which measures it.
    return int(_speed(tables, policy, learner) * assignment.target_s)


def _marks(config: RunConfig, policy: PolicyRow) -> list[int]:
    """Return agent steps to a policy's next ghost and to its next decision of PBT or turn's end."""
    pbt = config.pbt_of(policy.population)
    mark = next_mark(policy, pbt)
    turns = config.matchmaking.learning_side_turns
    if turns is not None:
        turn_ends = turns.every_agent_steps - policy.agent_steps % turns.every_agent_steps
        mark = min(mark, turn_ends) if mark > 0 else turn_ends
    # A mark that has passed waits for matches or a fit instead of steps, so it is no bound.
    return [ahead for ahead in (steps_to_next(config, policy), mark) if ahead > 0]


def _to_next_entry(settings: Settings, policy: PolicyRow) -> int | None:
    """Return agent steps to a policy's next mark in its schedules; None if there is none ahead."""
    schedule = settings.config.populations[policy.population].schedule
    marks = [entry.agent_steps for entry in schedule]
    # Schedules of single hyperparameters may have marks, too; others change with each assignment.
    mark = settings.scheduled[policy.population].next_mark(policy.agent_steps)
    marks += [mark] if mark is not None else []
    return min((at - policy.agent_steps for at in marks if at > policy.agent_steps), default=None)


def _speed(tables: Tables, policy: PolicyRow, learner: Learner) -> float:
    """Return agent steps per second; 0: not known.

    It is the learner's speed for the population, else the policy's on any learner, else the mean of
    its population.
    """
    # The learner comes first, as machines differ by more than policies of one population.
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


def record_episodes(
    state: ControllerState, learner_id: LearnerId, *, message: Train, finished: Finished
) -> None:
    """Record which episodes a learner holds after a Train assignment."""
    # `validation` has refused episodes of other players, so each one has a seating here.
    by_entrants = entrants_of(message)
    team = tuple(trainee.policy for trainee in message.trainees)
    episodes = CarriedEpisodes(
        learner=learner_id,
        team=team,
        checkpoints=tuple(published.checkpoint.key for published in finished.checkpoints),
        seatings=tuple(by_entrants[held.entrants] for held in finished.in_flight),
        lesson=message.lesson,
    )
    for policy in team:
        # Older episodes, on another learner or beside another rival, never go on.
        forget_episodes(state.indexes.retention, state.crew, policy)
        state.crew.episodes[policy] = episodes
    # The learner loads these weights again when the episodes go on, so they must not be removed.
    state.indexes.retention.pin(
        team[0],
        [
            player.weights.key
            for seating in episodes.seatings
            for player in seating.players
            if player.weights is not None
        ],
    )


def forget_dropped(
    state: ControllerState, tx: Transaction, learner_id: LearnerId, *, finished: Finished
) -> None:
    """Remove episodes that a learner reports as dropped, with an event if it lacked memory."""
    dropped = [
        policy
        for policy in finished.dropped
        if policy in state.crew.episodes and state.crew.episodes[policy].learner == learner_id
    ]
    if not dropped:
        return
    for policy in dropped:
        forget_episodes(state.indexes.retention, state.crew, policy)
    episodes = int(finished.metrics.get("episode/dropped", 0.0))
    # The count is 0 if the episodes' processes were lost, which the failed assignment reports.
    if not episodes:
        return
    tx.add_event(
        "episodes_dropped",
        learner_id,
        policies=list(dropped),
        episodes=episodes,
        reason="the learner's process has as much memory as environment.held_memory_mb allows",
    )


def forget_episodes(retention: Retention, crew: Crew, policy: PolicyId) -> None:
    """Remove the record of the episodes in which a policy learns, for all that learn in them."""
    episodes = crew.episodes.get(policy)
    for mate in () if episodes is None else episodes.team:
        del crew.episodes[mate]
        retention.pin(mate, [])


def forget_learner(retention: Retention, crew: Crew, learner_id: LearnerId) -> None:
    """Remove the records of episodes of a learner that leaves."""
    for policy, episodes in tuple(crew.episodes.items()):
        if episodes.learner == learner_id:
            forget_episodes(retention, crew, policy)


def holder_of(config: RunConfig, tables: Tables, crew: Crew, team: Team) -> LearnerId | None:
    """Return the learner that holds episodes of a team's present weights; None: no learner does."""
    episodes = crew.episodes.get(team[0].policy)
    # A crash loses held episodes, so a deterministic run must not decide by them.
    if episodes is None or config.deterministic:
        return None
    # A learner drops its episodes when the lesson changes.
    if episodes.lesson != tables.run.lesson:
        return None
    # If weights were replaced since (by a copy or a fall back), the episodes begin anew.
    is_same = episodes.checkpoints == tuple(row.checkpoint for row in team)
    return episodes.learner if is_same else None
