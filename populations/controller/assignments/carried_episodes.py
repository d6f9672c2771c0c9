"""Episodes that learners hold: which ones, and whether a policy goes on with them.

Not durable: they live in learners' memory, and after a crash they begin anew. Episodes go on only
on the learner that holds them, and only with the weights that they were played with.
"""

from __future__ import annotations

from arena.types import LearnerId, PolicyId
from arena.wire.messages import Finished, Train
from populations.config.run_config import RunConfig
from populations.controller.assignments.validation import entrants_of
from populations.controller.indexes.teams import Team
from populations.controller.state.leases import CarriedEpisodes, Crew
from populations.controller.state.state import ControllerState
from populations.controller.state.transaction import Transaction
from populations.records.tables import Tables
from populations.storage.retention import Retention


def record(
    state: ControllerState, learner_id: LearnerId, *, message: Train, finished: Finished
) -> None:
    """Note which episodes a learner holds after a Train assignment."""
    # `validation` has refused episodes of players that the message does not seat.
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
        # Older ones, on another learner or beside another rival, are not continued.
        forget(state.indexes.retention, state.crew, policy)
        state.crew.episodes[policy] = episodes
    # The learner loads these weights again when the episodes go on; nothing else may need them.
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
    """Forget episodes that a learner let go; explain those for which it lacked memory."""
    dropped = [
        policy
        for policy in finished.dropped
        if policy in state.crew.episodes and state.crew.episodes[policy].learner == learner_id
    ]
    if not dropped:
        return
    for policy in dropped:
        forget(state.indexes.retention, state.crew, policy)
    episodes = int(finished.metrics.get("episode/dropped", 0.0))
    # There are none where processes that step environments were lost, which the failed assignment
    # says.
    if not episodes:
        return
    tx.add_event(
        "episodes_dropped",
        learner_id,
        policies=list(dropped),
        episodes=episodes,
        reason="the learner's process has as much memory as environment.held_memory_mb allows",
    )


def forget(retention: Retention, crew: Crew, policy: PolicyId) -> None:
    """Forget who holds episodes in which a policy learns, and those that learn in them with it."""
    episodes = crew.episodes.get(policy)
    for mate in () if episodes is None else episodes.team:
        del crew.episodes[mate]
        retention.pin(mate, [])


def forget_learner(retention: Retention, crew: Crew, learner_id: LearnerId) -> None:
    """Forget the episodes of a learner that leaves."""
    for policy, episodes in tuple(crew.episodes.items()):
        if episodes.learner == learner_id:
            forget(retention, crew, policy)


def holder_of(config: RunConfig, tables: Tables, crew: Crew, team: Team) -> LearnerId | None:
    """Return the learner that holds episodes of a team's present weights, if one does."""
    episodes = crew.episodes.get(team[0].policy)
    # Held episodes are gone after a crash, and a deterministic run decides the same then.
    if episodes is None or config.deterministic:
        return None
    # A learner lets go of them by itself when it is given another lesson.
    if episodes.lesson != tables.run.lesson:
        return None
    # Other weights since then (an exploit, a fall back): the episodes begin anew.
    is_same = episodes.checkpoints == tuple(row.checkpoint for row in team)
    return episodes.learner if is_same else None
