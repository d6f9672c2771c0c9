"""Standings and champions of a run: pure functions of the journal's rows.

A policy's standing is that of its latest evaluated checkpoint; a ghost's is its own.

The title of champion passes to the player with the best lower bound once this player is likely
better than the champion, and only after the run's agent steps have grown by a fifth since the last
change: nearly equal players change places with every few matches. A policy keeps the title while it
trains on. The row of the fit names the champion's weights (`RatingsRow.champion`).

Tests: `tests/populations/league/test_standings.py`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple

from msgspec.structs import replace

from arena.types import Digest, Entrant, PlayerId, PolicyId, Value, WeightsRef, is_external
from populations.league.league import League
from populations.league.ratings import Ratings, interval_fields
from populations.ratings.model import probability_positive
from populations.records.rows import GhostRow, PolicyRow, RatingsRow

RATING = ("rating", "rating_low", "rating_high", "open")
"""Keys of a rating with its interval, in a view's documents."""


class Standing(NamedTuple):
    """Line of the standings; its document has these keys but ``key``, and ``exploitability``.

    It is a named tuple, because there is one for each ghost, and a dataclass takes longer to make.

    Attributes:
        rank_low: Best rank that the player may have, with a confidence of 95%; 1 is the best. Equal
            weights are one player. None: unrated, or not recorded by the last fit.
        rank_high: Worst rank that the player may have, as for ``rank_low``.
        open: Whether the interval is open above; ``rating_high`` is None then.
        matches: Evaluation matches of the rated weights, one for each seat; those of a policy's
            older weights do not count.
        losses: Losses over pairs of seats, so with n sides wins, draws and losses together are n -
            1 times as many as matches.
        score: Score per opponent, in [0, 1] (`arena.matches.pair_scores.mean_score`).
        kind: ``bot`` stands for every player from outside: a bot, or a player of another run.
        key: Directory of the rated weights, relative to the run; None for players from outside and
            for policies without a checkpoint.
        champion: Whether the player is the population's champion.
        same_as: Policy that made a ghost, if the policy's standing is about the same weights; views
            then show the two as one.
    """

    player: PlayerId
    kind: Literal["policy", "ghost", "bot"]
    role: str
    generation: int
    agent_steps: int
    evaluated_agent_steps: int | None
    rating: float | None
    rating_low: float | None
    rating_high: float | None
    rank_low: int | None
    rank_high: int | None
    matches: int
    wins: int
    draws: int
    losses: int
    score: float | None
    mean_return: float | None
    checkpoint: Digest | None
    weights: Digest | None
    parent: str | None
    hyperparameters: dict[str, Value]
    state: str
    key: str | None
    champion: bool = False
    same_as: PlayerId | None = None
    open: bool = False

    @property
    def reference(self) -> WeightsRef | None:
        """Reference to the rated weights; None: there are no weights to load."""
        return WeightsRef(digest=self.weights, key=self.key) if self.weights and self.key else None


def standings(league: League) -> dict[str, list[Standing]]:
    """Return all players by population: best rating first, unrated ones last."""
    populations = dict.fromkeys(seat.population for seat in league.seats)
    return {population: _standings(league, population) for population in populations}


def _standings(league: League, population: str) -> list[Standing]:
    tables = league.tables
    ratings = Ratings(tables.ratings.get(population))
    lines = [
        _policy_standing(league, ratings, row)
        for row in tables.policies.values()
        if row.population == population
    ]
    # A policy in quarantine cannot be champion, but its ghost can, so the two are not shown as one.
    own = {line.player: line.weights for line in lines if line.state == "active"}
    lines += [
        _ghost_standing(league, ratings, row, own=own)
        for row in tables.ghosts.values()
        if row.population == population and row.is_present
    ]
    lines += [
        _bot_standing(league, ratings, population, entrant)
        for name, entrant in league.tables.records
        if name == population and is_external(entrant)
    ]
    holders = holders_of(league, population)
    best = champion_of(ratings, holders, league)
    if best is not None:
        name = name_of(holders[best], league, best)
        lines = [line if line.player != name else line._replace(champion=True) for line in lines]
    # Players of equal rating are sorted by name, so that the order does not depend on the journal.
    return sorted(lines, key=lambda line: (line.rating is None, -(line.rating or 0.0), line.player))


def _results(
    league: League, ratings: Ratings, population: str, entrant: str | None
) -> dict[str, float | int | None]:
    record = league.record(population, entrant or "")
    best, worst = ratings.ranks(entrant) or (None, None)
    return {
        **interval_fields(ratings.interval(entrant)),
        "rank_low": best,
        "rank_high": worst,
        "matches": record.matches,
        "wins": record.wins,
        "draws": record.draws,
        "losses": record.losses,
        "score": record.score,
        "mean_return": record.return_sum / record.matches if record.matches else None,
    }


def _policy_standing(league: League, ratings: Ratings, row: PolicyRow) -> Standing:
    digest = league.standing_weights(row)
    current = league.tables.checkpoints[row.checkpoint] if row.checkpoint is not None else None
    # The evaluated weights may come from a donor's checkpoint.
    evaluated = league.checkpoints[digest] if digest is not None else None
    # Before the first evaluation the current checkpoint is shown, without a rating.
    shown = evaluated or current
    return Standing(
        player=PlayerId(row.policy),
        kind="policy",
        role=row.role,
        generation=row.generation,
        agent_steps=row.agent_steps,
        evaluated_agent_steps=evaluated.agent_steps if evaluated is not None else None,
        checkpoint=shown.digest if shown is not None else None,
        weights=shown.weights_digest if shown is not None else None,
        parent=row.parent,
        hyperparameters=dict(row.hyperparameters),
        state=row.state,
        key=shown.key if shown is not None else None,
        **_results(league, ratings, row.population, digest),  # type: ignore[arg-type]
    )


def _ghost_standing(
    league: League, ratings: Ratings, row: GhostRow, *, own: Mapping[PlayerId, Digest | None]
) -> Standing:
    """Return the standing of a ghost; ``own`` has the weights in each active policy's standing."""
    policy = PlayerId(row.policy)
    source = league.tables.checkpoints[row.checkpoint]
    return Standing(
        player=row.player,
        kind="ghost",
        role=row.role,
        generation=row.generation,
        agent_steps=row.agent_steps,
        # A ghost is frozen, so its rated weights are those of its agent steps.
        evaluated_agent_steps=row.agent_steps,
        checkpoint=source.digest,
        weights=row.weights_digest,
        parent=row.policy,
        hyperparameters={},
        state="active",
        key=row.key,
        same_as=policy if own.get(policy) == row.weights_digest else None,
        **_results(league, ratings, row.population, row.weights_digest),  # type: ignore[arg-type]
    )


def _bot_standing(league: League, ratings: Ratings, population: str, entrant: Entrant) -> Standing:
    return Standing(
        player=PlayerId(entrant),
        kind="bot",
        role="main",
        generation=0,
        agent_steps=0,
        evaluated_agent_steps=None,
        checkpoint=None,
        weights=None,
        parent=None,
        hyperparameters={},
        state="active",
        key=None,
        **_results(league, ratings, population, entrant),  # type: ignore[arg-type]
    )


def champion(lines: Sequence[Standing]) -> Standing | None:
    """Return the champion of a population's standings; None before any player is rated."""
    return next((line for line in lines if line.champion), None)


LIKELY = 0.9
"""Minimum probability of being better with which a player takes the title of champion."""

HELD_FOR = 1.2
"""Factor by which the run's agent steps must grow before a new champion can lose the title."""


EQUAL = 10.0
"""Maximum difference of lower bounds, in Elo, at which players count as equal."""


Holder = PolicyRow | GhostRow
"""Player that may be champion."""

Holders = Mapping[Entrant, Sequence[Holder]]
"""Players that may be champion, by their weights; several may have the same weights."""


def holders_of(league: League, population: str) -> Holders:
    """Return the players that may be champion: ghosts, and active policies by standing weights."""
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
    """Return the weights of the champion; None before any player is rated.

    A policy that trains on remains champion with its newest evaluated weights. If there is no
    champion, or it was removed, the champion is the player with the best lower bound.
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
    """Return the champion's weights after a fit, and the agent steps since which it is champion.

    Args:
        ratings: Ratings of the fit; its row has the previous champion.
        holders: Players that may be champion, by their weights.
        league: League, which knows the origins of weights.
        agent_steps: Agent steps of the run.
        is_over: Whether training is over. Then no waiting time applies, and among equal players the
            one that has trained longest is champion: results cannot separate players that have all
            solved a game.

    Returns:
        Weights and agent steps; None: no player is rated.
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
    """Return the newest evaluated weights of the champion's policy, unless they are likely worse.

    The title belongs to the policy, even if now only a ghost has the weights that won it.
    """
    origin = league.checkpoints.get(Digest(now))
    newer = None if origin is None else _standing_of(origin.policy, holders)
    made = None if newer is None else league.checkpoints.get(Digest(newer))
    # If the policy has copied other weights since, they do not inherit the title.
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
    # A policy with these weights may have trained on or copied them, so it may count more agent
    # steps than a ghost, whose number is exact.
    return min(one.agent_steps for one in holders)


def with_title_of(row: RatingsRow, before: RatingsRow) -> RatingsRow:
    """Return the row of a fit with the champion of the previous fit's row."""
    return replace(
        row,
        champion=before.champion,
        champion_agent_steps=before.champion_agent_steps,
        champion_player=before.champion_player,
    )


def name_of(holders: Sequence[Holder], league: League, weights: Entrant) -> PlayerId:
    """Return the player that represents some weights, of several that have them.

    The policy that trained them comes first, then its newest ghost, then policies that copied them.
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
