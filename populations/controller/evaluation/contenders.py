"""The players that evaluation matches are about, as arrays that decisions are made on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from arena.config import LearnerSetup
from populations.controller.indexes.player_strengths import PlayerStrength, player_strength
from populations.controller.indexes.teams import maker_of
from populations.controller.state.fits import Fits
from populations.controller.state.indexes import Indexes
from populations.controller.state.ledger import Ledger
from populations.controller.state.settings import Settings
from populations.league.league import League
from populations.league.ratings import Ratings
from populations.league.scheduling import Field, squared_lengths
from populations.matchmaking.external_players import ExternalPlayer

FloatArray = npt.NDArray[np.float64]


class EvaluationPool(Struct, frozen=True, kw_only=True):
    """Players with the arrays that decisions are made on, in one order."""

    players: tuple[PlayerStrength, ...]
    field: Field

    def deviations(self) -> FloatArray:
        """Return each rating's deviation from the mean of its population, Elo. float64 [N]."""
        # sqrt(|s_i - mean s|^2 + own_i): how far all are from the anchor makes no order among them.
        spread = self.field.centred_spread()
        return np.sqrt(squared_lengths(spread) + self.field.own_variance)


def evaluation_pool(
    settings: Settings, indexes: Indexes, ledger: Ledger, rng: np.random.Generator | None
) -> EvaluationPool:
    """Return policies at their last checkpoints, ghosts worth a look, and the bots.

    Args:
        settings: Settings of the run.
        indexes: Indexes over the rows.
        ledger: Failures, and whose fault they are.
        rng: Draws some of many ghosts; None: only the best of them are looked at.
    """
    league = indexes.league
    found: list[PlayerStrength] = []
    for population in settings.setup.ranked_populations:
        ratings = indexes.fits.ratings(population)
        found += indexes.strengths.policies(population, ratings)
        found += indexes.strengths.ghosts(population, ratings, rng=rng)
        found += _bots(settings.external_players, ratings, population)
    # Equal weights are one player, whoever holds them: a donor's are also those of who copied it.
    # Reversed, so that the first of equals stays: a policy comes before its ghost.
    first = {(known.population, known.entrant): known for known in reversed(found)}
    players = [known for known in found if first[known.population, known.entrant] is known]
    if shunned := ledger.shunned():
        players = [one for one in players if maker_of(league, one.entrant) not in shunned]
    names = list(settings.setup.ranked_populations)
    return EvaluationPool(
        players=tuple(players),
        field=Field(
            ratings=np.array([known.rating for known in players]),
            spread=_spread(settings.setup, indexes.fits, players),
            own_variance=np.array([known.own_variance for known in players]),
            is_eligible=np.array([known.kind != "bot" for known in players], dtype=bool),
            is_ranked=np.array([known.kind == "policy" for known in players], dtype=bool),
            population=np.array([names.index(known.population) for known in players]),
            remaining=indexes.pending_matches.remaining(players),
            scatter=max(
                row.pair_deviation**2
                if (row := indexes.fits.ratings(name).row) is not None
                else 0.0
                for name in names
            ),
            met=_meetings(league, players),
        ),
    )


def _meetings(league: League, players: Sequence[PlayerStrength]) -> Callable[[int], FloatArray]:
    """Return a function from a player's place to its matches with each player."""
    places = {(known.population, known.entrant): place for place, known in enumerate(players)}

    def met(player: int) -> FloatArray:
        found = np.zeros(len(players))
        own = (players[player].population, players[player].entrant)
        for (first, second, _), counts in league.results.of_entrant(own):
            place = places.get(second if first == own else first)
            if place is not None:
                found[place] += counts.matches
        return found

    return met


def _spread(setup: LearnerSetup, fits: Fits, players: list[PlayerStrength]) -> FloatArray:
    """Return rows of the populations' factors, which share their columns: one fit made them all."""
    spreads = {name: fits.ratings(name).spread for name in setup.ranked_populations}
    width = max((spread.shape[1] for spread in spreads.values() if spread is not None), default=1)
    # Zeros without a spread: `player_strength` has the variance in ``own_variance`` then.
    rows = np.zeros((len(players), width))
    for place, known in enumerate(players):
        spread = spreads[known.population]
        if known.position is not None and spread is not None and spread.shape[1] == width:
            rows[place] = spread[known.position]
    return rows


def _bots(
    external_players: Mapping[str, tuple[ExternalPlayer, ...]], ratings: Ratings, population: str
) -> Iterator[PlayerStrength]:
    for bot in external_players[population]:
        if bot.is_rated:
            team = {
                name: one.seated
                for name, external in external_players.items()
                for one in external
                if one.player == bot.player
            }
            position = ratings.index(bot.player)
            yield player_strength(ratings, team, population, kind="bot", position=position)
