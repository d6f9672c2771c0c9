"""A tournament: every ordered pair of contenders plays the same number of matches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np
import torch

from arena.core import Actor
from arena.envs.base import BatchedEnv
from arena.errors import ConfigError
from arena.matches.match import Block, play_matches, share_envs
from arena.matches.pair_scores import mean_score, seen_from
from arena.matches.play import Progress
from arena.matches.seating import seat_teams
from arena.matches.seeds import environment_seeds
from arena.matches.tally import merge_tallies
from arena.types import Entrant, Seat, Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorMixture:
    """Several actors, one of which is drawn for each match.

    Attributes:
        actors: Actors, at least one.
        probabilities: Probability of each; they sum to one.
    """

    actors: tuple[Actor, ...]
    probabilities: tuple[float, ...]


Contender = Mapping[str, Actor | ActorMixture]
"""Actor of a participant in the seats of each population. With several populations, a participant
may lack some. From a mixture one actor is drawn for each match.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairResult:
    """Results of one ordered pair, seen from ``home``.

    With more than two sides ``home`` is each of them equally often, and is compared with every
    other side: ``wins + draws + losses`` is a multiple of ``matches``.

    Attributes:
        home: Name of a contender.
        away: Name of another one.
        seats: Contender by seat name; with more than two sides, in the first rotation.
        matches: Matches played to their ends.
        wins: Comparisons that home won.
        draws: Comparisons that were equal.
        losses: Comparisons that home lost.
        mean_return: Mean undiscounted return of home.
        points: Sum of home's scores in the comparisons.
        distinct: Different games among the matches.
    """

    home: str
    away: str
    seats: Mapping[str, str]
    matches: int
    wins: int
    draws: int
    losses: int
    mean_return: float
    points: float
    distinct: int

    @property
    def score(self) -> float:
        """Score of home per opponent, in [0, 1]."""
        found = mean_score(self.points, self.wins + self.draws + self.losses)
        assert found is not None, "every pair has played"
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class TournamentResult:
    """The results of a tournament.

    Attributes:
        pairs: Results, one per ordered pair.
        tallies: The same matches by seating; entrants are contenders' names.
    """

    pairs: tuple[PairResult, ...]
    tallies: tuple[Tally, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pairing:
    """A pairing in which ``home`` has the seats of one team and ``away`` all others.

    Attributes:
        teams: Team of each seat.
    """

    home: str
    away: str
    teams: tuple[tuple[int, str], ...]
    home_team: tuple[int, str]
    num_matches: int

    @property
    def entrants(self) -> tuple[Entrant, ...]:
        """Name of a contender per seat."""
        return tuple(
            Entrant(self.home if team == self.home_team else self.away) for team in self.teams
        )


def play_tournament(
    env: BatchedEnv,
    *,
    contenders: Mapping[str, Contender],
    num_matches: int,
    seats: tuple[Seat, ...],
    sides: Mapping[str, tuple[str, ...]],
    seed: int,
    generator: torch.Generator,
    progress: Progress | None = None,
) -> TournamentResult:
    """Let every ordered pair of contenders play, so that each has every seat.

    Home is the first side (with more than two sides each in turn), away the others. Where seats
    belong to several populations, pairs that lack an actor for one of their seats are left out.

    Args:
        env: Environments, stepped as one; reset here.
        contenders: Participants by their names in results.
        num_matches: Matches per ordered pair, at least 1. If it is no multiple of the number of
            sides (more than two), the sides that home has once more rotate from pair to pair,
            starting with one drawn from the seed.
        seats: Seats of the environment.
        sides: Agents that share one score, by side.
        seed: Seed of the episodes, and of the draws from mixtures.
        generator: Source of the actions, on the environment's device.
        progress: Counter of steps.

    Raises:
        ValueError: If there is nothing to play.
        ConfigError: If no pair of contenders can fill the seats.
    """
    names = list(contenders)
    if len(names) < 2:
        raise ValueError(f"a tournament needs two or more contenders, got {names}")
    if num_matches < 1:
        raise ValueError(f"num_matches must be at least 1, got {num_matches}")
    pairings = _pairings(contenders, num_matches=num_matches, seats=seats, seed=seed)
    if not pairings:
        needed = ", ".join(dict.fromkeys(seat.population for seat in seats))
        raise ConfigError(f"no two of {', '.join(names)} can fill the seats of {needed}")
    tallies: list[Tally] = []
    queue = [
        lineup
        for index, pairing in enumerate(_balanced(pairings, names=names))
        # Each pairing has its own generator, so its draws do not depend on the others.
        for lineup in _lineups(
            pairing, contenders, seats=seats, rng=np.random.default_rng((seed, index))
        )
    ]
    waves = share_envs([lineup.num_matches for lineup in queue], num_envs=env.num_envs)
    for wave, shares in enumerate(waves):
        blocks = [
            replace(queue[one.pairing], num_envs=one.num_envs, num_matches=one.num_matches)
            for one in shares
        ]
        tallies += play_matches(
            env,
            blocks=blocks,
            seats=seats,
            sides=sides,
            seeds=environment_seeds(seed, num_envs=env.num_envs, wave=wave),
            generator=generator,
            progress=progress,
        )
    # Lineups of a mixture share the contender's name, so their matches are one tally.
    merged = merge_tallies(tallies)
    return TournamentResult(pairs=_results(pairings, tallies=merged, seats=seats), tallies=merged)


def _pairings(
    contenders: Mapping[str, Contender],
    *,
    num_matches: int,
    seats: tuple[Seat, ...],
    seed: int,
) -> list[_Pairing]:
    teams = seat_teams(seats)
    distinct = tuple(dict.fromkeys(teams))
    # With two teams, the reverse pair is the other rotation.
    home_teams = distinct if len(distinct) > 2 else distinct[:1]
    pairings: list[_Pairing] = []
    # The sides with one match more must not always be the first ones. Both orders of a pair have
    # the same extra sides, so that neither player has the better ones.
    turn_of: dict[frozenset[str], int] = {}
    for home, away in permutations(contenders, 2):
        # The turn is the seed plus the number of the pair, so the extra sides rotate from pair to
        # pair.
        turn = turn_of.setdefault(frozenset((home, away)), seed + len(turn_of))
        rotations = [
            _Pairing(home=home, away=away, teams=teams, home_team=team, num_matches=0)
            for team in home_teams
        ]
        # If a contender lacks an actor for a population, the other rotations get the matches.
        playable = [
            rotation
            for rotation in rotations
            if all(
                seat.population in contenders[name]
                for seat, name in zip(seats, rotation.entrants, strict=True)
            )
        ]
        for position, rotation in enumerate(playable):
            fewer, num_more = divmod(num_matches, len(playable))
            # Cyclically, the num_more positions from turn * num_more on have one match more.
            count = fewer + ((position - turn * num_more) % len(playable) < num_more)
            if count:
                pairings.append(replace(rotation, num_matches=count))
    return pairings


def _balanced(pairings: Sequence[_Pairing], *, names: Sequence[str]) -> list[_Pairing]:
    """Order the pairings: each wave has all contenders about equally often, at home and away."""
    # Contenders act as one stack, which is fastest when all have equally many decisions.
    position = {name: index for index, name in enumerate(names)}
    return sorted(
        pairings,
        key=lambda pairing: (
            # Each distance from home to away has each contender once at home and once away.
            (position[pairing.away] - position[pairing.home]) % len(names)
        ),
    )


def _lineups(
    pairing: _Pairing,
    contenders: Mapping[str, Contender],
    *,
    seats: tuple[Seat, ...],
    rng: np.random.Generator,
) -> list[Block]:
    """Draw the actors of a pairing's matches; return a block per lineup, without environments."""
    seated = [(n, seat.population) for n, seat in zip(pairing.entrants, seats, strict=True)]
    drawn = draw_lineups(
        [contenders[name][population] for name, population in seated],
        identities=seated,
        num_matches=pairing.num_matches,
        rng=rng,
    )
    return [
        Block(entrants=pairing.entrants, actors=actors, num_envs=0, num_matches=count)
        for actors, count in drawn
    ]


def draw_lineups(
    players: Sequence[Actor | ActorMixture],
    *,
    identities: Sequence[Hashable],
    num_matches: int,
    rng: np.random.Generator,
) -> list[tuple[tuple[Actor, ...], int]]:
    """Draw the actors of some matches.

    Args:
        players: Player of each seat.
        identities: Keys, equal where one player has several seats and therefore draws once.
        num_matches: Number of matches.
        rng: Source of one draw for each match and mixture.

    Returns:
        Actors, one per seat, and the number of their matches, which sum to ``num_matches``.
    """
    drawn = {
        identity: rng.choice(len(player.actors), size=num_matches, p=player.probabilities).tolist()
        # A dict makes a player with several seats draw once for all of them.
        for identity, player in dict(zip(identities, players, strict=True)).items()
        if isinstance(player, ActorMixture)
    }
    if not drawn:
        return [(tuple(p for p in players if not isinstance(p, ActorMixture)), num_matches)]
    # Matches with the same actors form one block, because only their seeds differ.
    counts = Counter(zip(*drawn.values(), strict=True))
    lineups = []
    # Choices are sorted, because the order of blocks decides their seeds.
    for choice, count in sorted(counts.items()):
        chosen = dict(zip(drawn, choice, strict=True))
        actors = tuple(
            player.actors[chosen[identity]] if isinstance(player, ActorMixture) else player
            for identity, player in zip(identities, players, strict=True)
        )
        lineups.append((actors, count))
    return lineups


def _results(
    pairings: Sequence[_Pairing], *, tallies: Sequence[Tally], seats: tuple[Seat, ...]
) -> tuple[PairResult, ...]:
    by_entrants = {tally.entrants: tally for tally in tallies}
    rotations: dict[tuple[str, str], list[_Pairing]] = {}
    for pairing in pairings:
        rotations.setdefault((pairing.home, pairing.away), []).append(pairing)
    return tuple(
        _pair_result(group, by_entrants=by_entrants, seats=seats) for group in rotations.values()
    )


def _pair_result(
    rotations: Sequence[_Pairing],
    *,
    by_entrants: Mapping[tuple[Entrant, ...], Tally],
    seats: tuple[Seat, ...],
) -> PairResult:
    matches = wins = draws = losses = distinct = 0
    return_sum = won = 0.0
    for pairing in rotations:
        tally = by_entrants[pairing.entrants]
        home_seat = pairing.teams.index(pairing.home_team)
        # A side shares one score, so its first seat stands for it.
        rivals = {pairing.teams.index(team) for team in pairing.teams} - {home_seat}
        matches += tally.matches
        # Games of two rotations are different, because home has another seat.
        distinct += tally.distinct or 0
        return_sum += tally.return_sum[home_seat]
        found = seen_from(home_seat, rivals, tally.pairs)
        wins, draws, losses = wins + found[0], draws + found[1], losses + found[2]
        won += found[3]
    first = rotations[0]
    return PairResult(
        home=first.home,
        away=first.away,
        seats={seat.name: name for seat, name in zip(seats, first.entrants, strict=True)},
        matches=matches,
        wins=wins,
        draws=draws,
        losses=losses,
        mean_return=return_sum / matches,
        points=won,
        distinct=distinct,
    )
