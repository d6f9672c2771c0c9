"""The players that evaluation matches are about, and how well each one is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from arena.types import Entrant, Player, PlayerId
from populations.controller.state import ControllerState
from populations.league.scheduling import Field
from populations.league.standings import Ratings
from populations.ratings.bradley_terry import BradleyTerry
from populations.types import GhostRow, PolicyRow

FloatArray = npt.NDArray[np.float64]

MAX_BEST_GHOSTS = 16
MAX_DRAWN_GHOSTS = 32
"""Ghosts that are looked at for one evaluation: the best rated ones, and some drawn evenly."""

_MODEL = BradleyTerry()


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A player and what is known of its strength.

    Attributes:
        player: With the frozen weights that would play.
        entrant: As results name it.
        population: Its population.
        kind: Policies are ranked by PBT; they and ghosts may become champion.
        rating: Elo; its own, or that of the weights it was trained from.
        position: Of those weights in the population's ratings; None: nothing of its line is rated.
        own_variance: Elo squared, apart from what it shares with those weights.
    """

    player: Player
    entrant: Entrant
    population: str
    kind: str
    rating: float
    position: int | None
    own_variance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownField:
    """Players with the arrays that decisions are made on, in one order."""

    players: tuple[Known, ...]
    field: Field

    def deviations(self) -> FloatArray:
        """Of each rating from the mean of its population's policies, in Elo. float64 [N].

        How far all of them are from the anchor makes no order.
        """
        spread = self.field.centred_spread()
        return np.asarray(np.sqrt((spread**2).sum(axis=1) + self.field.own_variance))


def known_field(state: ControllerState, rng: np.random.Generator | None) -> KnownField:
    """Active policies at their current checkpoints, ghosts worth a look, and the bots.

    Args:
        state: The controller.
        rng: Draws some of many ghosts; None: only the best of them are looked at.
    """
    found: list[Known] = []
    for population in state.setup.populations:
        ratings = state.ratings(population)
        found += _policies(state, ratings, population)
        found += _ghosts(state, ratings, population, rng)
        found += _bots(state, ratings, population)
    # Equal weights are one player, whoever holds them: a donor's are also those of who copied it.
    first = {(known.population, known.entrant): known for known in reversed(found)}
    players = [known for known in found if first[known.population, known.entrant] is known]
    names = list(state.setup.populations)
    return KnownField(
        players=tuple(players),
        field=Field(
            ratings=np.array([known.rating for known in players]),
            spread=_spread(state, players),
            own_variance=np.array([known.own_variance for known in players]),
            is_eligible=np.array([known.kind != "bot" for known in players], dtype=bool),
            is_ranked=np.array([known.kind == "policy" for known in players], dtype=bool),
            population=np.array([names.index(known.population) for known in players]),
        ),
    )


def _spread(state: ControllerState, players: list[Known]) -> FloatArray:
    """Rows of the populations' factors, which share their columns: one fit made them all."""
    spreads = {name: state.ratings(name).spread for name in state.setup.populations}
    width = max((spread.shape[1] for spread in spreads.values() if spread is not None), default=1)
    rows = np.zeros((len(players), width))
    for index, known in enumerate(players):
        spread = spreads[known.population]
        if known.position is not None and spread is not None and spread.shape[1] == width:
            rows[index] = spread[known.position]
    return rows


def _policies(state: ControllerState, ratings: Ratings, population: str) -> Iterator[Known]:
    for row in state.tables.policies.values():
        if row.population != population or row.state != "active" or row.checkpoint is None:
            continue
        checkpoint = state.tables.checkpoints[row.checkpoint]
        yield _known(
            ratings,
            Player(player=PlayerId(row.policy), weights=checkpoint.weights),
            entrant=Entrant(checkpoint.weights_digest),
            population=population,
            kind="policy",
            ancestor=state.league.standing_weights(row, state.tables),
        )


def _ghosts(
    state: ControllerState, ratings: Ratings, population: str, rng: np.random.Generator | None
) -> Iterator[Known]:
    ghosts = [
        ghost
        for ghost in state.tables.ghosts.values()
        if ghost.population == population and not ghost.corrupt
    ]
    if len(ghosts) > MAX_BEST_GHOSTS + (0 if rng is None else MAX_DRAWN_GHOSTS):
        ghosts = _worth_a_look(ghosts, ratings, rng)
    for ghost in ghosts:
        yield _known(
            ratings,
            Player(player=ghost.player, weights=ghost.weights),
            entrant=Entrant(ghost.weights_digest),
            population=population,
            kind="ghost",
            ancestor=_standing(state, state.tables.policies.get(ghost.policy)),
        )


def _worth_a_look(
    ghosts: list[GhostRow], ratings: Ratings, rng: np.random.Generator | None
) -> list[GhostRow]:
    """The ghosts with the best lower bounds, and some drawn evenly from all."""
    intervals = [ratings.interval(ghost.weights_digest) for ghost in ghosts]
    low = np.array([-np.inf if interval is None else interval[1] for interval in intervals])
    best = np.argpartition(-low, MAX_BEST_GHOSTS)[:MAX_BEST_GHOSTS]
    drawn = [] if rng is None else rng.permutation(len(ghosts))[:MAX_DRAWN_GHOSTS].tolist()
    return [ghosts[index] for index in sorted({*best.tolist(), *drawn})]


def _standing(state: ControllerState, policy: PolicyRow | None) -> str | None:
    return None if policy is None else state.league.standing_weights(policy, state.tables)


def _bots(state: ControllerState, ratings: Ratings, population: str) -> Iterator[Known]:
    for bot in state.config.evaluation.bots:
        yield _known(
            ratings,
            Player(player=PlayerId(bot)),
            entrant=Entrant(bot),
            population=population,
            kind="bot",
            ancestor=None,
        )


def _known(
    ratings: Ratings,
    player: Player,
    *,
    entrant: Entrant,
    population: str,
    kind: str,
    ancestor: str | None,
) -> Known:
    """What is known of a player: its own rating, else its line's with a wider interval."""
    position, own_variance = ratings.index(entrant), 0.0
    if position is None:
        position = ratings.index(ancestor)
        deviation = _MODEL.root_deviation if position is None else _MODEL.child_deviation
        own_variance = deviation**2
    rating = 0.0
    if position is not None and ratings.row is not None:
        rating = ratings.row.ratings[position]
        if ratings.spread is None:
            own_variance += ratings.row.deviations[position] ** 2
    return Known(
        player=player,
        entrant=entrant,
        population=population,
        kind=kind,
        rating=rating,
        position=position,
        own_variance=own_variance,
    )
