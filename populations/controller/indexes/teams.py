"""Teams: policies that learn together if all agents cooperate but belong to several populations.

The policies of equal index, one of each population, are a team for the whole run. A team trains, is
evaluated, copied, quarantined and leaves ghosts as one, because a policy's skill shows only beside
its teammates. The first population's policy is the leader: its clock, rating and rules decide. With
one population, or several sides, each policy is a team of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from arena.types import AssignmentId, Digest, Entrant, Player, PlayerId, PolicyId, trainee_entrant
from arena.wire.messages import Trainee
from populations.league.league import League
from populations.records.rows import GhostRow, PolicyRow

Team = tuple[PolicyRow, ...]
"""Policies that learn in one assignment, in the order of their populations."""

FrozenTeam = Mapping[str, Player]
"""Players of a team with their frozen weights, by population."""


def team_of(league: League, policy: PolicyRow) -> Team:
    """Return the current rows of a policy and its teammates, in the order of their populations."""
    # The rows are read from the tables, because those of the caller may be outdated.
    mates = league.teams.get(policy.policy, (policy.policy,))
    return tuple(league.tables.policies[mate] for mate in mates)


def leader_of(league: League, policy_id: PolicyId) -> PolicyRow:
    """Return the leader of a policy's team, which is the policy of the first population."""
    return team_of(league, league.tables.policies[policy_id])[0]


def leaders_of(league: League, trainees: Iterable[Trainee]) -> tuple[PolicyRow, ...]:
    """Return the leader of each team that learns in an assignment, without repetition."""
    # A dictionary removes repetitions and keeps the order of the trainees.
    leaders = dict.fromkeys(leader_of(league, trainee.policy).policy for trainee in trainees)
    return tuple(league.tables.policies[policy] for policy in leaders)


def maker_of(league: League, weights: str) -> Entrant | None:
    """Return policy (of a team the leader) and generation that made weights; None: not this run's.

    Args:
        league: Checkpoints and teams.
        weights: Digest of the weights.
    """
    made = league.checkpoints.get(Digest(weights))
    if made is None:
        return None
    return trainee_entrant(leader_of(league, made.policy).policy, generation=made.generation)


def is_whole(league: League, policy: PolicyRow) -> bool:
    """Return whether each policy of a team has a checkpoint and is not quarantined."""
    # Retired policies (`pbt.share`: halving) count, because their last checkpoints are rated.
    return all(
        row.state != "quarantined" and row.checkpoint is not None for row in team_of(league, policy)
    )


def held_up(league: League) -> set[PolicyId]:
    """Return the policies of teams in which one has a pending decision or is not active."""
    return {
        mate
        for policy, team in league.teams.items()
        if league.tables.policies[policy].pending
        or league.tables.policies[policy].state != "active"
        for mate in team
    }


def frozen_team(league: League, policy: PolicyRow) -> FrozenTeam:
    """Return a policy and its teammates with their checkpoints, which must exist, by population."""
    players = {}
    for row in team_of(league, policy):
        assert row.checkpoint is not None, "only policies with a checkpoint are seated frozen"
        weights = league.tables.checkpoints[row.checkpoint].weights
        players[row.population] = Player(player=PlayerId(row.policy), weights=weights)
    return players


GhostsByOrigin = Mapping[tuple[PolicyId, AssignmentId], GhostRow]
"""Ghosts by policy and the assignment that made the checkpoint."""


def ghosts_by_origin(league: League) -> GhostsByOrigin:
    """Return ghosts by origin, to find those of teammates; empty if there are no teams."""
    if not league.teams:
        return {}
    checkpoints = league.tables.checkpoints
    return {
        (ghost.policy, origin): ghost
        for ghost in league.tables.ghosts.values()
        # After a repair of the journal the assignment may be unknown.
        if ghost.is_present and (origin := checkpoints[ghost.checkpoint].assignment_id)
    }


def ghost_team(league: League, ghost: GhostRow, known: GhostsByOrigin) -> FrozenTeam | None:
    """Return a ghost and its teammates' ghosts, by population; None if one of them is removed."""
    mates = league.teams.get(ghost.policy)
    if mates is None:
        return {ghost.population: Player(player=ghost.player, weights=ghost.weights)}
    # One assignment trains all teammates, so it identifies the ghosts that belong together.
    origin = league.tables.checkpoints[ghost.checkpoint].assignment_id
    ghosts = [known.get((mate, origin)) for mate in mates]
    players = {
        found.population: Player(player=found.player, weights=found.weights)
        for found in ghosts
        if found is not None
    }
    return players if len(players) == len(mates) else None
