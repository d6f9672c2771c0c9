"""Episodes that learners hold: which ones, and whether a policy goes on with them.

Not durable: they live in learners' memory, and after a crash they begin anew. Episodes go on only
on the learner that holds them, and only with the weights that they were played with.
"""

from __future__ import annotations

from collections.abc import Sequence

from arena.types import LearnerId, PolicyId, Seating
from arena.wire.messages import Finished, Train
from populations.controller.assignments.validation import entrants_of
from populations.controller.state.leases import CarriedEpisodes
from populations.controller.state.state import ControllerState
from populations.controller.state.teams import team_of
from populations.controller.state.transaction import Transaction
from populations.records.rows import PolicyRow

MAX_LEAD_ASSIGNMENTS = 4
"""Assignments by which a policy that is held elsewhere may fall behind before it is moved."""


def record(
    state: ControllerState, learner_id: LearnerId, *, message: Train, finished: Finished
) -> None:
    """Note which episodes a learner holds after a Train assignment."""
    # `validation` has refused episodes of players that the message does not seat.
    by_entrants = entrants_of(message)
    leader = message.trainees[0].policy
    episodes = CarriedEpisodes(
        checkpoints=tuple(published.checkpoint.key for published in finished.checkpoints),
        seatings=tuple(by_entrants[held.entrants] for held in finished.in_flight),
        lesson=message.lesson,
    )
    # Another learner may hold older ones, which are not continued.
    forget(state, leader)
    state.learners[learner_id].episodes[leader] = episodes
    state.episode_holders[leader] = learner_id
    # The learner loads these weights again when the episodes go on; nothing else may need them.
    state.retention.pin(
        leader,
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
    """Forget episodes that a learner let go for want of memory; explain it."""
    dropped = [
        policy for policy in finished.dropped if policy in state.learners[learner_id].episodes
    ]
    if not dropped:
        return
    for policy in dropped:
        forget(state, policy)
    tx.add_event(
        "episodes_dropped",
        learner_id,
        policies=list(dropped),
        episodes=int(finished.metrics.get("episode/dropped", 0.0)),
        reason="the learner's process has as much memory as environment.held_memory_mb allows",
    )


def forget(state: ControllerState, leader: PolicyId) -> None:
    """Forget who holds episodes of a team."""
    holder = state.episode_holders.pop(leader, None)
    if holder is not None:
        # A learner that is lost is taken out before its episodes are forgotten.
        if holder in state.learners:
            state.learners[holder].episodes.pop(leader, None)
        state.retention.pin(leader, [])


def forget_learner(state: ControllerState, leaders: Sequence[PolicyId]) -> None:
    """Forget the episodes of a learner that is gone."""
    for leader in leaders:
        forget(state, leader)


def carried(
    state: ControllerState, learner_id: LearnerId, team: Sequence[PolicyRow]
) -> tuple[Seating, ...]:
    """Return the seatings of the episodes with which a team goes on on a learner."""
    if holder_of(state, team) != learner_id:
        return ()
    return state.learners[learner_id].episodes[team[0].policy].seatings


def holder_of(state: ControllerState, team: Sequence[PolicyRow]) -> LearnerId | None:
    """Return the learner that holds episodes of a team's present weights, if one does."""
    leader = team[0].policy
    holder = state.episode_holders.get(leader)
    # Held episodes are gone after a crash, and a deterministic run decides the same then.
    if holder is None or state.config.deterministic:
        return None
    episodes = state.learners[holder].episodes[leader]
    # A learner lets go of them by itself when it is given another lesson.
    if episodes.lesson != state.tables.run.lesson:
        return None
    # Other weights since then (an exploit, a fall back): the episodes begin anew.
    return holder if episodes.checkpoints == tuple(row.checkpoint for row in team) else None


def choose(
    state: ControllerState,
    learner_id: LearnerId,
    first: PolicyRow,
    *,
    own: Sequence[PolicyRow],
    max_lead: int,
) -> PolicyRow | None:
    """Choose the policy that a learner trains next.

    Args:
        state: State of the controller.
        learner_id: The learner.
        first: Policy that has trained least, of those that are free.
        own: Free policies whose episodes the learner holds.
        max_lead: Agent steps by which others may be ahead of one that is held elsewhere.

    Returns:
        The first one, unless another learner holds its episodes and it is not far behind; then one
        of the learner's own. None: the first one is left to its holder.
    """
    if holder_of(state, team_of(state, first)) in (None, learner_id):
        return first
    learner = state.learners[learner_id]
    held = [state.tables.assignments.get(held.assignment_id) for held in learner.held]
    training = [
        state.tables.policies[row.message.trainees[0].policy]
        for row in held
        if row is not None and isinstance(row.message, Train)
    ]
    ahead = min((row.agent_steps for row in own or training), default=None)
    if ahead is None or first.agent_steps + max_lead < ahead:
        # Nothing else to do here, or too long not trained: it begins its episodes anew.
        return first
    return min(own, key=lambda row: (row.agent_steps, row.index), default=None)
