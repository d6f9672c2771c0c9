"""The Nash mixture of a league: frozen players with probabilities that nobody in it can beat.

In a cyclic game the best rated player loses to somebody; a mixture need not. Players are weighed by
the equilibrium of the game in which both sides choose one of them (Balduzzi, Tuyls, Perolat and
Graepel, "Re-evaluating evaluation", NeurIPS, 2018), whose payoffs are the scores of evaluation
matches minus 1/2, filled by what ratings predict (`populations.league.scores`).

One population on both sides: the equilibrium of highest entropy, which is unique. Two populations,
one on each side: a zero-sum game between their players, and one solution of its linear program.

Shapes: N players of a population, M of the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from arena.errors import ConfigError
from arena.matches.pair_scores import num_scored, points
from arena.types import Seat
from populations.core import FloatArray
from populations.league.scores import Outcome, counted, filled_scores, filled_scores_among
from populations.league.standings import Standing
from populations.matchmaking.psro import players_of_game
from populations.matchmaking.rating_proximate import expected_scores
from populations.ratings.nash import max_entropy_nash, zero_sum_nash
from populations.records.aggregates import PairRow

MAX_PLAYERS = 256
"""Of more players, the best rated half of so many and the newest others are in the game."""

MAX_MEMBERS = 16
MIN_PROBABILITY = 0.01
NO_MASS = 1e-9

MAX_ADVANTAGE = 1200.0
NUM_HALVINGS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureMember:
    """A player that is drawn now and then.

    Attributes:
        standing: Who it is.
        probability: Of being drawn for an episode.
    """

    standing: Standing
    probability: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """What a population plays in equilibrium.

    Attributes:
        population: Whose it is.
        members: Most probable first; probabilities sum to one.
        num_players: Frozen players that were weighed.
        worst_score: Expected score against whichever of the opponents weighed does best, in [0, 1].
            One population: 1/2 if nobody beats the mixture, less if members were dropped.
    """

    population: str
    members: tuple[MixtureMember, ...]
    num_players: int
    worst_score: float


def nash_mixtures(
    standings: Mapping[str, Sequence[Standing]],
    pairs: Iterable[PairRow],
    *,
    seats: Sequence[Seat],
) -> dict[str, Mixture]:
    """Weigh the frozen players of every population.

    Ghosts and the standing weights of active policies take part if they are rated; equal weights
    once, as the ghost. Bots never do.

    Args:
        standings: Of all populations; only players whose weights can be loaded.
        pairs: Evaluation results.
        seats: Of the environment.

    Returns:
        By population. The same arguments give the same mixtures.

    Raises:
        ConfigError: If the game has not two sides, if more than one population plays on a side, or
            if a population has no such player.
    """
    rows, columns = _opposed(seats)
    players = {name: _frozen(standings[name]) for name in dict.fromkeys((rows, columns))}
    for name, lines in players.items():
        if not lines:
            raise ConfigError(f"population {name} has no mixture: no frozen player is rated yet")
    outcomes = list(_outcomes(pairs, players, rows=rows, columns=columns))
    if rows == columns:
        scores = filled_scores_among(_ratings(players[rows]), outcomes)
        game = 0.5 * (scores - scores.T)
        found = _pruned(game, max_entropy_nash(game))
        return {rows: _mixture(rows, players[rows], found, game=game)}
    game = _scores_between(players[rows], players[columns], outcomes) - 0.5
    row, column, _ = zero_sum_nash(game)
    return {
        rows: _mixture(rows, players[rows], _pruned(game, row), game=game),
        columns: _mixture(columns, players[columns], _pruned(-game.T, column), game=-game.T),
    }


def _opposed(seats: Sequence[Seat]) -> tuple[str, str]:
    """The population of either side."""
    sides: dict[str, list[str]] = {}
    for seat in seats:
        sides.setdefault(seat.side, []).append(seat.population)
    if len(sides) == 1:
        raise ConfigError("a mixture needs opponents: in cooperation there is one side")
    if len(sides) > 2 or any(len(populations) > 1 for populations in sides.values()):
        raise ConfigError(
            "a mixture needs two sides with one population on each, got "
            + ", ".join(f"{side}: {' and '.join(names)}" for side, names in sides.items())
        )
    first, second = sides.values()
    return first[0], second[0]


def _frozen(standings: Sequence[Standing]) -> list[Standing]:
    """Who may be a member, best rated first."""
    by_weights: dict[str, Standing] = {}
    for line in standings:
        is_rated = line.kind != "bot" and line.state == "active" and line.rating is not None
        if not is_rated or line.weights is None or line.key is None:
            continue
        # A ghost keeps its weights for ever; a policy goes on.
        if line.weights not in by_weights or line.kind == "ghost":
            by_weights[line.weights] = line
    lines = sorted(by_weights.values(), key=lambda line: (-(line.rating or 0.0), line.player))
    agent_steps = np.array([line.evaluated_agent_steps or 0 for line in lines], dtype=np.int64)
    chosen = players_of_game(agent_steps, ratings=lambda: _ratings(lines), max_players=MAX_PLAYERS)
    return [lines[index] for index in sorted(chosen.tolist())]


def _ratings(lines: Sequence[Standing]) -> FloatArray:
    return np.array([line.rating for line in lines], dtype=np.float64)


def _outcomes(
    pairs: Iterable[PairRow],
    players: Mapping[str, Sequence[Standing]],
    *,
    rows: str,
    columns: str,
) -> Iterator[Outcome]:
    """Results between players, seen from the rows' population."""
    index = {
        name: {str(player.weights): i for i, player in enumerate(lines)}
        for name, lines in players.items()
    }
    for pair in pairs:
        # The first seat is the lower one, and so on the rows' side.
        i, j = index[rows].get(pair.first), index[columns].get(pair.second)
        if i is not None and j is not None:
            yield i, j, points(pair), num_scored(pair)


def _scores_between(
    rows: Sequence[Standing], columns: Sequence[Standing], outcomes: Sequence[Outcome]
) -> FloatArray:
    """Scores of one population's players against the other's. float64 [N, M].

    Ratings of two populations are on scales of their own. So what they predict is shifted by the
    advantage of the first side over the second with which they agree with the total of all results.
    """
    row, column = _ratings(rows)[:, np.newaxis], _ratings(columns)[np.newaxis, :]
    won, matches = counted(outcomes, shape=(len(rows), len(columns)))
    low, high = -MAX_ADVANTAGE, MAX_ADVANTAGE
    for _ in range(NUM_HALVINGS if matches.any() else 0):
        middle = 0.5 * (low + high)
        if (matches * expected_scores(row + middle, column)).sum() < won.sum():
            low = middle
        else:
            high = middle
    return filled_scores(expected_scores(row + 0.5 * (low + high), column), outcomes)


def _pruned(game: FloatArray, mixture: FloatArray) -> FloatArray:
    """The best mixture of few members.

    While there are more than ``MAX_MEMBERS``, or one has less than ``MIN_PROBABILITY``, the
    lightest goes (of equals the last), and the others are weighed anew by the linear program for
    which all players are still opponents: its mass goes to those who do its work.

    Args:
        game: What rows get from columns. float64 [N, M].
        mixture: Probabilities [N].

    Returns:
        Probabilities [N].
    """
    kept = np.flatnonzero(mixture > NO_MASS)
    masses = mixture[kept]
    while len(kept) > MAX_MEMBERS or masses.min() < MIN_PROBABILITY:
        lightest = len(kept) - 1 - int(np.argmin(masses[::-1]))
        kept = np.delete(kept, lightest)
        masses = zero_sum_nash(game[kept])[0]
        kept, masses = kept[masses > NO_MASS], masses[masses > NO_MASS]
    pruned = np.zeros(len(mixture))
    pruned[kept] = masses / masses.sum()
    return pruned


def _mixture(
    population: str, players: Sequence[Standing], probabilities: FloatArray, *, game: FloatArray
) -> Mixture:
    order = np.argsort(-probabilities, kind="stable")
    return Mixture(
        population=population,
        members=tuple(
            MixtureMember(standing=players[i], probability=float(probabilities[i]))
            for i in order.tolist()
            if probabilities[i] > 0.0
        ),
        num_players=len(players),
        worst_score=0.5 + float((probabilities @ game).min()),
    )
