"""Champions: pure functions of the journal's rows.

The title goes to the player with the best lower bound of those that may have it, once that one is
likely ahead, and not again before the run has trained a fifth more: bounds of players who are
nearly equal change places with every few matches. A policy takes it along to what it trains. The
row of the fit has the weights (`populations.records.rows.RatingsRow.champion`).

Tests: `tests/populations/league/test_standings.py`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from arena.types import Digest, Entrant, PlayerId, PolicyId
from populations.league.league import League
from populations.league.ratings import Ratings
from populations.ratings.model import probability_positive
from populations.records.rows import GhostRow, PolicyRow, RatingsRow

LIKELY = 0.9
"""Probability of being ahead from which on a player takes the title from another one."""

HELD_FOR = 1.2
"""Growth of the run's agent steps before which the title is not taken from who has just got it."""


EQUAL = 10.0
"""Elo by which lower bounds may differ of players who are equals."""


Holder = PolicyRow | GhostRow
"""Player with weights that may have the title."""

Holders = Mapping[Entrant, Sequence[Holder]]
"""Players by their weights."""


def holders_of(league: League, population: str) -> Holders:
    """Return those who may be champion: ghosts, and active policies by their standing weights."""
    found: defaultdict[Entrant, list[Holder]] = defaultdict(list)
    for policy in league.tables.policies.values():
        if policy.population == population and policy.state == "active":
            digest = league.standing_weights(policy)
            if digest is not None:
                found[Entrant(digest)].append(policy)
    for ghost in league.tables.ghosts.values():
        if ghost.population == population and ghost.is_present:
            found[Entrant(ghost.weights_digest)].append(ghost)
    return found


def champion_of(ratings: Ratings, holders: Holders, league: League) -> Entrant | None:
    """Return the weights of the champion; None before anybody is rated.

    A policy that trains on keeps its title with the weights that it stands by now. Where nobody has
    the title, or who had it is gone, it is the player with the best lower bound.
    """
    now = None if ratings.row is None else ratings.row.champion
    if now is not None and now not in holders:
        origin = league.checkpoints.get(Digest(now))
        now = None if origin is None else _standing_of(origin.policy, holders)
    if now is None or ratings.low(now) is None:
        return _best_of(ratings, holders)
    return now


def _best_of(ratings: Ratings, holders: Collection[Entrant]) -> Entrant | None:
    return next((Entrant(name) for name in ratings.best_first if name in holders), None)


def next_champion(
    ratings: Ratings, holders: Holders, league: League, *, agent_steps: int, is_over: bool
) -> tuple[Entrant, int] | None:
    """Return the weights that have the title by a fit, and since which agent steps; None: nobody.

    Args:
        ratings: The fit; its row has the champion of before.
        holders: Players by the weights that may have the title.
        league: Origins of weights.
        agent_steps: Agent steps of the run.
        is_over: Whether training is over. Then nobody waits, and of equals the one that has trained
            longest is champion: in a game that many have solved results tell no more.
    """
    row, best = ratings.row, _best_of(ratings, holders)
    if row is None or best is None:
        return None
    now, since = champion_of(ratings, holders, league), row.champion_agent_steps
    assert now is not None, "somebody is the best"
    if row.champion is None or (row.champion not in holders and now == best):
        return best, agent_steps
    if is_over:
        bound = (ratings.low(best) or 0.0) - EQUAL
        equals = [one for one in holders if (ratings.low(one) or -math.inf) >= bound]
        last = max(equals, key=lambda one: (_trained(holders[one]), one == now))
        return (now, since) if last == now else (last, agent_steps)
    now = _trained_on(now, ratings, holders, league)
    gap = ratings.difference(best, now)
    is_likely = gap is not None and best != now and probability_positive(*gap) >= LIKELY
    return (best, agent_steps) if is_likely and agent_steps >= HELD_FOR * since else (now, since)


def _trained_on(now: Entrant, ratings: Ratings, holders: Holders, league: League) -> Entrant:
    """Return the weights that the champion's policy has trained since, unless likely worse.

    The title is its policy's, also where a ghost has the weights that it was given for.
    """
    origin = league.checkpoints.get(Digest(now))
    newer = None if origin is None else _standing_of(origin.policy, holders)
    made = None if newer is None else league.checkpoints.get(Digest(newer))
    # It may stand by weights that it has copied since.
    if origin is None or newer is None or made is None or made.policy != origin.policy:
        return now
    gap = ratings.difference(newer, now)
    return now if gap is None or probability_positive(*gap) < 1.0 - LIKELY else newer


def _standing_of(policy: PolicyId, holders: Holders) -> Entrant | None:
    for weights, own in holders.items():
        if any(isinstance(one, PolicyRow) and one.policy == policy for one in own):
            return weights
    return None


def _trained(holders: Sequence[Holder]) -> int:
    # A policy may have trained on, or copied the weights: the ghost knows best.
    return min(one.agent_steps for one in holders)


def with_title_of(row: RatingsRow, before: RatingsRow) -> RatingsRow:
    """Return the row of a fit with the champion of the one before."""
    return replace(
        row,
        champion=before.champion,
        champion_agent_steps=before.champion_agent_steps,
        champion_player=before.champion_player,
    )


def name_of(holders: Sequence[Holder], league: League, weights: Entrant) -> PlayerId:
    """Return the player that weights are named by: the one that trained them, if it has them still.

    Else its ghost; a policy that has just copied them comes last.
    """
    origin = league.checkpoints.get(Digest(weights))
    holder = max(
        holders,
        key=lambda one: (
            origin is not None and one.policy == origin.policy,
            isinstance(one, PolicyRow),
            one.agent_steps,
        ),
    )
    return holder.player if isinstance(holder, GhostRow) else PlayerId(holder.policy)
