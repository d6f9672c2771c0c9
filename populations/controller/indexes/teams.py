"""Teams: who learns beside whom where all agents cooperate but belong to several populations.

The policies of equal index, one of each population, are a team for the whole run. It trains, is
evaluated, copied, quarantined and leaves ghosts as one: what one of them is worth shows only beside
the others. The first population's policy leads: its clock, its rating and its rules decide. With
one population, or several sides, everybody is a team of its own.
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
"""Players of a team with the frozen weights that would play, by population."""


def team_of(league: League, policy: PolicyRow) -> Team:
    """Return a policy and its mates as they are now, in the order of their populations."""
    # Read from the tables: rows that the caller holds may be outdated.
    mates = league.teams.get(policy.policy, (policy.policy,))
    return tuple(league.tables.policies[mate] for mate in mates)


def leader_of(league: League, policy_id: PolicyId) -> PolicyRow:
    """Return the first of a policy's team."""
    return team_of(league, league.tables.policies[policy_id])[0]


def leaders_of(league: League, trainees: Iterable[Trainee]) -> tuple[PolicyRow, ...]:
    """Return the leader of each team that learns in an assignment, once."""
    # Each team once, in the order of the trainees.
    leaders = dict.fromkeys(leader_of(league, trainee.policy).policy for trainee in trainees)
    return tuple(league.tables.policies[policy] for policy in leaders)


def maker_of(league: League, weights: str) -> Entrant | None:
    """Return the policy and generation that weights are of, of a team the leader's.

    Args:
        league: Checkpoints, and who learns beside whom.
        weights: Digest. None of this run: None is returned.
    """
    made = league.checkpoints.get(Digest(weights))
    if made is None:
        return None
    return trainee_entrant(leader_of(league, made.policy).policy, generation=made.generation)


def is_whole(league: League, policy: PolicyRow) -> bool:
    """Return whether everybody in a policy's team has a checkpoint and is not quarantined."""
    # Policies that left (`pbt.share`: halving) are rated by what they left behind.
    return all(
        row.state != "quarantined" and row.checkpoint is not None for row in team_of(league, policy)
    )


def held_up(league: League) -> set[PolicyId]:
    """Return policies that cannot be trained because of a mate: one waits, or is quarantined."""
    return {
        mate
        for policy, team in league.teams.items()
        if league.tables.policies[policy].pending
        or league.tables.policies[policy].state != "active"
        for mate in team
    }


def frozen_team(league: League, policy: PolicyRow) -> FrozenTeam:
    """Return a policy and its mates at their checkpoints, by population. They must have some."""
    players = {}
    for row in team_of(league, policy):
        assert row.checkpoint is not None, "only policies with a checkpoint are seated frozen"
        weights = league.tables.checkpoints[row.checkpoint].weights
        players[row.population] = Player(player=PlayerId(row.policy), weights=weights)
    return players


GhostsByOrigin = Mapping[tuple[PolicyId, AssignmentId], GhostRow]
"""Ghosts by policy and the assignment that made the checkpoint."""


def ghosts_by_origin(league: League) -> GhostsByOrigin:
    """Return the ghosts by origin, to find mates; empty where every policy is a team of its own."""
    if not league.teams:
        return {}
    checkpoints = league.tables.checkpoints
    return {
        (ghost.policy, origin): ghost
        for ghost in league.tables.ghosts.values()
        # After a repair it may not be known who learned beside whom.
        if ghost.is_present and (origin := checkpoints[ghost.checkpoint].assignment_id)
    }


def ghost_team(league: League, ghost: GhostRow, known: GhostsByOrigin) -> FrozenTeam | None:
    """Return a ghost and those that its mates left with it, by population; None if one is gone."""
    mates = league.teams.get(ghost.policy)
    if mates is None:
        return {ghost.population: Player(player=ghost.player, weights=ghost.weights)}
    # Mates are trained by one assignment, which made all their checkpoints.
    origin = league.tables.checkpoints[ghost.checkpoint].assignment_id
    ghosts = [known.get((mate, origin)) for mate in mates]
    players = {
        found.population: Player(player=found.player, weights=found.weights)
        for found in ghosts
        if found is not None
    }
    return players if len(players) == len(mates) else None
