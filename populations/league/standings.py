"""Standings of a run: pure functions of the journal's rows.

A policy's standing is that of its latest evaluated checkpoint; a ghost's is its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from arena.types import Digest, Entrant, PlayerId, Value, WeightsRef, is_external
from populations.league.champions import champion_of, holders_of, name_of
from populations.league.league import League
from populations.league.ratings import Ratings, interval_fields
from populations.records.rows import GhostRow, PolicyRow

RATING = ("rating", "rating_low", "rating_high", "open")
"""Keys of a rating with its interval, in documents."""


class Standing(NamedTuple):
    """Line of the standings; the JSON of ``arena league RUN standings`` has the same keys.

    A named tuple: there are as many as ghosts, and it takes two thirds of a dataclass's time.

    Attributes:
        rank_low: Best rank that the player may have, with a confidence of 95%; 1 is the best. Equal
            weights are one player. None: unrated, or not recorded by the last fit.
        rank_high: The worst one.
        open: Whether the interval is open above: ``rating_high`` is None then.
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
