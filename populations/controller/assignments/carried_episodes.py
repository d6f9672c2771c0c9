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
from populations.controller.state.teams import Team
from populations.controller.state.transaction import Transaction

MAX_LEAD_ASSIGNMENTS = 4
"""Assignments by which a policy that is held elsewhere may fall behind before it is moved."""


def record(
    state: ControllerState, learner_id: LearnerId, *, message: Train, finished: Finished
) -> None:
    """Note which episodes a learner holds after a Train assignment."""
    # `validation` has refused episodes of players that the message does not seat.
    by_entrants = entrants_of(message)
    team = tuple(trainee.policy for trainee in message.trainees)
    episodes = CarriedEpisodes(
        team=team,
        checkpoints=tuple(published.checkpoint.key for published in finished.checkpoints),
        seatings=tuple(by_entrants[held.entrants] for held in finished.in_flight),
        lesson=message.lesson,
    )
    for policy in team:
        # Older ones, on another learner or beside another rival, are not continued.
        forget(state, policy)
        state.learners[learner_id].episodes[policy] = episodes
        state.episode_holders[policy] = learner_id
    # The learner loads these weights again when the episodes go on; nothing else may need them.
    state.retention.pin(
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
        policy for policy in finished.dropped if policy in state.learners[learner_id].episodes
    ]
    if not dropped:
        return
    for policy in dropped:
        forget(state, policy)
    episodes = int(finished.metrics.get("episode/dropped", 0.0))
    # None where processes that step environments were lost, which the failed assignment says.
    if not episodes:
        return
    tx.add_event(
        "episodes_dropped",
        learner_id,
        policies=list(dropped),
        episodes=episodes,
        reason="the learner's process has as much memory as environment.held_memory_mb allows",
    )


def forget(state: ControllerState, policy: PolicyId) -> None:
    """Forget who holds episodes in which a policy learns, and those that learn in them with it."""
    holder = state.episode_holders.get(policy)
    if holder is not None:
        for mate in state.learners[holder].episodes[policy].team:
            del state.learners[holder].episodes[mate], state.episode_holders[mate]
            state.retention.pin(mate, [])


def forget_learner(state: ControllerState, learner_id: LearnerId) -> None:
    """Forget the episodes of a learner that leaves."""
    for policy in tuple(state.learners[learner_id].episodes):
        forget(state, policy)


def carried(state: ControllerState, learner_id: LearnerId, team: Team) -> tuple[Seating, ...]:
    """Return the seatings of the episodes with which a team goes on on a learner."""
    if holder_of(state, team) != learner_id:
        return ()
    return state.learners[learner_id].episodes[team[0].policy].seatings


def holder_of(state: ControllerState, team: Team) -> LearnerId | None:
    """Return the learner that holds episodes of a team's present weights, if one does."""
    policy = team[0].policy
    holder = state.episode_holders.get(policy)
    # Held episodes are gone after a crash, and a deterministic run decides the same then.
    if holder is None or state.config.deterministic:
        return None
    episodes = state.learners[holder].episodes[policy]
    # A learner lets go of them by itself when it is given another lesson.
    if episodes.lesson != state.tables.run.lesson:
        return None
    # Other weights since then (an exploit, a fall back): the episodes begin anew.
    return holder if episodes.checkpoints == tuple(row.checkpoint for row in team) else None


def choose(
    state: ControllerState,
    learner_id: LearnerId,
    first: Team,
    *,
    own: Sequence[Team],
    max_lead: int,
) -> Team | None:
    """Choose the team that a learner trains next.

    Args:
        state: State of the controller.
        learner_id: The learner.
        first: Team of the policy that has trained least, of those that are free.
        own: Free teams whose episodes the learner holds.
        max_lead: Agent steps by which others may be ahead of one that is held elsewhere.

    Returns:
        The first one, unless another learner holds its episodes and it is not far behind; then one
        of the learner's own. None: the first one is left to its holder.
    """
    if holder_of(state, first) in (None, learner_id):
        return first
    learner = state.learners[learner_id]
    held = [state.tables.assignments.get(held.assignment_id) for held in learner.held]
    training = [
        tuple(state.tables.policies[trainee.policy] for trainee in row.message.trainees)
        for row in held
        if row is not None and isinstance(row.message, Train)
    ]
    ahead = min(map(_least_trained, own or training), default=None)
    if ahead is None or _least_trained(first)[0] + max_lead < ahead[0]:
        # Nothing else to do here, or too long not trained: it begins its episodes anew.
        return first
    return min(own, key=_least_trained, default=None)


def _least_trained(team: Team) -> tuple[int, int]:
    """Return agent steps and index of the policy of a team that has trained least."""
    return min((row.agent_steps, row.index) for row in team)
