"""Nash mixture of a league: frozen players with probabilities that no player in it can beat.

In a cyclic game even the best rated player loses to some other; a mixture need not. Players are
weighed by the equilibrium of the game in which both sides choose one of them (Balduzzi, Tuyls,
Perolat and Graepel, "Re-evaluating evaluation", NeurIPS, 2018). Its payoffs are the scores of
evaluation matches minus 1/2, completed by predictions of the ratings (`populations.league.scores`).

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
"""Most players in the game: beyond that, the best rated half of this number and the
newest others.
"""

MAX_MEMBERS = 16
MIN_PROBABILITY = 0.01
NO_MASS = 1e-9

# 2400 / 2^40 Elo are left after the halvings: 2e-9.
MAX_ADVANTAGE = 1200.0
NUM_HALVINGS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """Equilibrium strategy of a population.

    Attributes:
        population: Name of the population.
        members: Standings with their probabilities of being drawn for an episode, the most
            probable first; these sum to one.
        num_players: Frozen players that were weighed.
        worst_score: Expected score against the strongest of the weighed opponents, in [0, 1]. One
            population: 1/2 if none beats the mixture, less if members were dropped.
    """

    population: str
    members: tuple[tuple[Standing, float], ...]
    num_players: int
    worst_score: float


def nash_mixtures(
    standings: Mapping[str, Sequence[Standing]],
    pairs: Iterable[PairRow],
    *,
    seats: Sequence[Seat],
) -> dict[str, Mixture]:
    """Weigh the frozen players of every population.

    Rated ghosts and rated standing weights of active policies take part; equal weights once, as the
    ghost. Bots never do.

    Args:
        standings: Standings of all populations; only players whose weights can be loaded.
        pairs: Results of evaluation.
        seats: Seats of the environment.

    Returns:
        Mixtures by population. Equal arguments give equal mixtures.

    Raises:
        ConfigError: If the game does not have two sides, if more than one population plays on a
            side, or if a population has no such player.
    """
    rows, columns = _opposed(seats)
    players = {name: _frozen(standings[name]) for name in dict.fromkeys((rows, columns))}
    for name, lines in players.items():
        if not lines:
            raise ConfigError(f"population {name} has no mixture: no frozen player is rated yet")
    outcomes = list(_outcomes(pairs, players, rows=rows, columns=columns))
    if rows == columns:
        scores = filled_scores_among(_ratings(players[rows]), outcomes)
        # Scores of both sides sum to 1, so this is scores - 1/2, antisymmetric to the bit.
        game = 0.5 * (scores - scores.T)
        found = _pruned(game, max_entropy_nash(game))
        return {rows: _mixture(rows, players[rows], found, game=game)}
    # Players of different populations: the game has a value other than 0, but is zero-sum.
    game = _scores_between(players[rows], players[columns], outcomes) - 0.5
    row, column, _ = zero_sum_nash(game)
    return {
        rows: _mixture(rows, players[rows], _pruned(game, row), game=game),
        # The columns' player sees the game turned round: -A^T.
        columns: _mixture(columns, players[columns], _pruned(-game.T, column), game=-game.T),
    }


def _opposed(seats: Sequence[Seat]) -> tuple[str, str]:
    """Return the populations of the two sides."""
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
    """Return the possible members, best rated first."""
    by_weights: dict[str, Standing] = {}
    for line in standings:
        is_rated = line.kind != "bot" and line.state == "active" and line.rating is not None
        if not is_rated or line.weights is None or line.key is None:
            continue
        # A ghost keeps its weights for ever; a policy goes on.
        if line.weights not in by_weights or line.kind == "ghost":
            by_weights[line.weights] = line
    lines = sorted(by_weights.values(), key=lambda line: (-(line.rating or 0.0), line.player))
    # Agent steps are the evaluated ones, those of the weights that the rating is about.
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
    """Yield results between players, seen from the rows' population."""
    index = {
        name: {str(player.weights): i for i, player in enumerate(lines)}
        for name, lines in players.items()
    }
    for pair in pairs:
        # The first seat is the lower one, so it is on the rows' side.
        i, j = index[rows].get(pair.first), index[columns].get(pair.second)
        if i is not None and j is not None:
            yield i, j, points(pair), num_scored(pair)


def _scores_between(
    rows: Sequence[Standing], columns: Sequence[Standing], outcomes: Sequence[Outcome]
) -> FloatArray:
    """Return the scores of one population's players against the other's. float64 [N, M].

    The ratings of two populations are on separate scales. Their predictions are shifted by the
    advantage of the first side at which they agree with the total of all results.
    """
    row, column = _ratings(rows)[:, np.newaxis], _ratings(columns)[np.newaxis, :]
    won, matches = counted(outcomes, shape=(len(rows), len(columns)))
    low, high = -MAX_ADVANTAGE, MAX_ADVANTAGE
    # Bisection: the predicted total grows with the advantage.
    for _ in range(NUM_HALVINGS if matches.any() else 0):
        middle = 0.5 * (low + high)
        if (matches * expected_scores(row + middle, column)).sum() < won.sum():
            low = middle
        else:
            high = middle
    return filled_scores(expected_scores(row + 0.5 * (low + high), column), outcomes)


def _pruned(game: FloatArray, mixture: FloatArray) -> FloatArray:
    """Reduce a mixture to few members.

    While there are more than ``MAX_MEMBERS``, or one has less than ``MIN_PROBABILITY``, the
    lightest is dropped (the last of equals) and the others are weighed anew by the linear program,
    with all players as opponents. Members that replace the dropped one thus get its mass.

    Args:
        game: Payoff of rows against columns. float64 [N, M].
        mixture: Probabilities [N].

    Returns:
        Probabilities [N].
    """
    kept = np.flatnonzero(mixture > NO_MASS)
    masses = mixture[kept]
    # Each round drops at least one, and a single member has probability 1.
    while len(kept) > MAX_MEMBERS or masses.min() < MIN_PROBABILITY:
        # argmin of the reversed masses: the last of equals.
        lightest = len(kept) - 1 - int(np.argmin(masses[::-1]))
        kept = np.delete(kept, lightest)
        # Rows only: opponents are still all players. The program may leave further members without
        # mass.
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
            (players[i], float(probabilities[i])) for i in order.tolist() if probabilities[i] > 0.0
        ),
        num_players=len(players),
        # min_j (p A)_j is the worst over pure opponents, and no mixture of them is worse.
        worst_score=0.5 + float((probabilities @ game).min()),
    )
