"""Standings and champions of a run: pure functions of the journal's rows.

A policy's standing is that of its latest evaluated checkpoint; a ghost's is its own.

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
from typing import Literal, NamedTuple

from msgspec.structs import replace

from arena.types import Digest, Entrant, PlayerId, PolicyId, Value, WeightsRef, is_external
from populations.league.league import League
from populations.league.ratings import Ratings, interval_fields
from populations.ratings.model import probability_positive
from populations.records.rows import GhostRow, PolicyRow, RatingsRow

RATING = ("rating", "rating_low", "rating_high", "open")
"""Keys of a rating with its interval, in documents."""


class Standing(NamedTuple):
    """Line of the standings; its document has these keys but ``key``, and ``exploitability``.

    A named tuple: there are as many as ghosts, and it takes two thirds of a dataclass's time.

    Attributes:
        rank_low: Best rank that the player may have, with a confidence of 95%; 1 is the best. Equal
            weights are one player. None: unrated, or not recorded by the last fit.
        rank_high: The worst one.
        open: Whether the interval is open above: ``rating_high`` is None then.
        matches: Evaluation matches of the weights that are rated, one for each seat; not of a
            policy's older weights.
        losses: Losses over pairs of seats, so with n sides wins, draws and losses are n - 1 times
            as many as matches.
        score: Score per opponent, in [0, 1] (`arena.matches.pair_scores.mean_score`).
        kind: ``bot`` is whoever is from outside: a bot, or a player of another run.
        key: Directory of the weights that the standing is about, relative to the run; None from
            outside, and for policies without a checkpoint.
        champion: Whether it is the population's champion.
        same_as: Policy of a ghost, if its standing is about the ghost's very weights: screens show
            the two as one.
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
        """Weights that the standing is about; None: there are none to load."""
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
    # Only the ghost of a policy in quarantine can lead, so the policy's own weights do not count.
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
    # Equals are sorted by name, so that the order does not depend on the journal's.
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
    # The origin of these weights may be a donor's checkpoint.
    evaluated = league.checkpoints[digest] if digest is not None else None
    # Weights that can be loaded even before the first evaluation; the rating stays None.
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
    """Return the standing of a ghost; ``own`` are the weights of the policies' standings."""
    policy = PlayerId(row.policy)
    source = league.tables.checkpoints[row.checkpoint]
    return Standing(
        player=row.player,
        kind="ghost",
        role=row.role,
        generation=row.generation,
        agent_steps=row.agent_steps,
        # A ghost is frozen: its weights are those of its steps.
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
