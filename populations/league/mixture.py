"""Nash mixture of a league: frozen players with probabilities that no player in it can beat.

In a cyclic game even the best rated player loses to some other; a mixture need not. Players are
weighted by the equilibrium of the game in which both sides choose one of them (Balduzzi, Tuyls,
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
"""Maximum number of players in the game; of more, the best rated (half of this number) and the
newest others take part.
"""

MAX_MEMBERS = 16
MIN_PROBABILITY = 0.01
NO_MASS = 1e-9

# The bisection over 2400 Elo is exact to 2400 / 2^40 = 2e-9 Elo after 40 halvings.
MAX_ADVANTAGE = 1200.0
NUM_HALVINGS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """Equilibrium strategy of a population.

    Attributes:
        population: Name of the population.
        members: Standings with their probabilities of being drawn for an episode, the most
            probable first; these sum to one.
        num_players: Number of frozen players in the game.
        worst_score: Expected score against the strongest opponent in the game, in [0, 1]. One
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
    """Compute the mixture of every population's frozen players.

    Rated ghosts and rated standing weights of active policies take part; a ghost with the same
    weights as a policy replaces it. Bots never take part.

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
        # The scores of both sides sum to 1, so this is scores - 1/2, exactly antisymmetric.
        game = 0.5 * (scores - scores.T)
        found = _pruned(game, max_entropy_nash(game))
        return {rows: _mixture(rows, players[rows], found, game=game)}
    # Between two populations the value of the game need not be 0, but it is zero-sum.
    game = _scores_between(players[rows], players[columns], outcomes) - 0.5
    row, column, _ = zero_sum_nash(game)
    return {
        rows: _mixture(rows, players[rows], _pruned(game, row), game=game),
        # From the columns' side the game is -A^T.
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
        # A ghost is preferred, because its weights never change and a policy trains on.
        if line.weights not in by_weights or line.kind == "ghost":
            by_weights[line.weights] = line
    lines = sorted(by_weights.values(), key=lambda line: (-(line.rating or 0.0), line.player))
    # Agent steps must be those of the rated weights, not those of a policy that has trained on.
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
    """Yield results between players, with the player of the rows' population first."""
    index = {
        name: {str(player.weights): i for i, player in enumerate(lines)}
        for name, lines in players.items()
    }
    for pair in pairs:
        # A pair names the player of the lower seat first, and rows are the players of that seat.
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
    # The predicted total grows with the advantage, so bisection finds it.
    for _ in range(NUM_HALVINGS if matches.any() else 0):
        middle = 0.5 * (low + high)
        if (matches * expected_scores(row + middle, column)).sum() < won.sum():
            low = middle
        else:
            high = middle
    return filled_scores(expected_scores(row + 0.5 * (low + high), column), outcomes)


def _pruned(game: FloatArray, mixture: FloatArray) -> FloatArray:
    """Reduce a mixture to few members.

    While there are more than ``MAX_MEMBERS``, or one has less than ``MIN_PROBABILITY``, the least
    probable is dropped (the last of equals) and the linear program computes the probabilities of
    the others anew, with all players as opponents. So its mass goes to members that replace it.

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
        # The masses are reversed, so that argmin finds the last of equals.
        lightest = len(kept) - 1 - int(np.argmin(masses[::-1]))
        kept = np.delete(kept, lightest)
        # Only rows are dropped: all players remain opponents. The program may leave more members
        # without mass.
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
        # min_j (p A)_j is the worst score against a single player; no mixture of players is worse.
        worst_score=0.5 + float((probabilities @ game).min()),
    )
