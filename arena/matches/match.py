"""Matches between frozen players; each environment plays a fixed number of them.

Every match that starts is played to its end and counts. A match is a list of plays, each with its
seats: one in competition, two in cooperation. Shapes: B environments, A agents, M matches of an
environment, N episodes, Q seats of a play.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from types import MappingProxyType
from typing import NamedTuple

import torch

from arena.config import NO_OPENINGS, RandomOpenings
from arena.core import Actor
from arena.envs.base import BatchedEnv, Phase, Turn
from arena.envs.batched.scoring import sides_beaten
from arena.envs.phase import players_of_agents, tell_environments
from arena.errors import EnvironmentFault
from arena.games.recording import GameRecorder
from arena.matches.distinct import NO_DECISION, FirstDecisions, GameHashes, combined
from arena.matches.play import Play, Progress
from arena.matches.seated import SeatedPlayers, block_of_envs
from arena.matches.seating import plays_of
from arena.matches.seeds import Stream, derived_seed
from arena.matches.tally import (
    agents_of_seats,
    mean_of_agents,
    played_to_the_end,
)
from arena.matches.tally_sums import TallySums
from arena.spaces import ActionLayout
from arena.types import Entrant, Seat, Tally

# A key has the environment in its upper bits and the number of the episode in these lower bits.
_NUMBER_BITS = 32

MAX_ROUNDS = 16
"""Most repetitions of all plays until each match has an episode that is void in no play."""


class Stopped(Exception):
    """Error: play was stopped before its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Environments with the same players in their seats.

    Attributes:
        entrants: Names in the tally, one per seat.
        actors: Actors, one per seat.
        num_envs: Number of environments.
        num_matches: Number of matches that each of them plays.
        players: Players that environments are told, one per seat; empty: the entrants.
    """

    entrants: tuple[Entrant, ...]
    actors: tuple[Actor, ...]
    num_envs: int
    num_matches: int
    players: tuple[str, ...] = ()

    def phase(self, seats: Sequence[Seat], own: Sequence[int]) -> Phase:
        """Return the phase for these environments, with the players of some seats."""
        names = self.players or self.entrants
        players = players_of_agents([seats[seat] for seat in own], [names[seat] for seat in own])
        return Phase(name="evaluation", agent_steps=None, players=players)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Environments that a pairing gets.

    Attributes:
        pairing: Index of the pairing.
        num_envs: Number of environments.
        num_matches: Number of matches that each of them plays.
    """

    pairing: int
    num_envs: int
    num_matches: int


def share_envs(num_matches: Sequence[int], *, num_envs: int) -> tuple[tuple[Share, ...], ...]:
    """Divide environments among pairings, in proportion to their matches.

    A pairing's matches are split over its environments as evenly as possible, so that each
    environment's number is fixed and the pairing's total is exact.

    Args:
        num_matches: Number of matches of each pairing.
        num_envs: Number of environments that step as one batch.

    Returns:
        Waves that are played one after the other; there is more than one if there are more
        pairings than environments.
    """
    waves = []
    # Each pairing of a wave needs at least one environment of its own.
    for start in range(0, len(num_matches), num_envs):
        wave = range(start, min(start + num_envs, len(num_matches)))
        counts = [num_matches[pairing] for pairing in wave]
        # A wave lasts as long as its busiest environment.
        longest = _fewest_rounds(counts, num_envs=num_envs)
        shares: list[Share] = []
        for pairing, count in zip(wave, counts, strict=True):
            shares.extend(_split(pairing, count=count, longest=longest))
        waves.append(tuple(shares))
    return tuple(waves)


def _fewest_rounds(counts: Sequence[int], *, num_envs: int) -> int:
    """Return the smallest M for which environments of at most M matches each suffice."""
    # M >= ceil(sum of counts / B) is a lower bound; rounding up per pairing may require a larger
    # M.
    rounds = max(1, -(-sum(counts) // num_envs))
    while sum(-(-count // rounds) for count in counts) > num_envs:
        rounds += 1
    return rounds


def _split(pairing: int, *, count: int, longest: int) -> list[Share]:
    if count == 0:
        return []
    # ceil(count / M) environments are needed; num_more of them play one match more than the
    # others.
    num_envs = -(-count // longest)
    fewer, num_more = divmod(count, num_envs)
    shares = [
        Share(pairing=pairing, num_envs=num_more, num_matches=fewer + 1),
        Share(pairing=pairing, num_envs=num_envs - num_more, num_matches=fewer),
    ]
    return [share for share in shares if share.num_envs]


def play_matches(
    env: BatchedEnv,
    *,
    blocks: Sequence[Block],
    seats: tuple[Seat, ...],
    sides: Mapping[str, tuple[str, ...]],
    seeds: Sequence[int],
    generator: torch.Generator,
    progress: Progress | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    radices: Mapping[str, tuple[int, ...] | None] = MappingProxyType({}),
    recorder: GameRecorder | None = None,
    openings: RandomOpenings = NO_OPENINGS,
    actions: Mapping[str, ActionLayout] = MappingProxyType({}),
) -> tuple[Tally, ...]:
    """Play every block's matches to their ends.

    Actors sample with ``generator``. In cooperation the home team plays its episodes, then the away
    team the same seeded ones; of each pair the higher outcome wins, by default the mean return of
    all agents. Where an episode is void for one team, both play another one.

    Args:
        env: Environments, stepped as one; the first blocks have the first ones. Reset here.
        blocks: Players by block of environments. Environments beyond their sum are halted.
        seats: Seats of the environment.
        sides: Agents by side; a side's agents share one score.
        seeds: Seeds, one per environment.
        generator: Source of all actions, on the environment's device.
        progress: Counter of steps.
        should_stop: Callback before every step; True stops.
        radices: Place values of choices in an action's index, by population, where first decisions
            are counted (`arena.matches.openings.radices`).
        recorder: Records games of some environments.
        openings: Share of episodes that begin with random decisions, and how many. In cooperation
            each team has its own.
        actions: Layouts by population, from which random decisions are drawn.

    Returns:
        One tally per distinct tuple of entrants.

    Raises:
        ValueError: If the blocks need more environments than there are.
        Stopped: If ``should_stop`` returned True.
        EnvironmentFault: If an environment broke its contract.
    """
    if not blocks:
        return ()
    block_of_env, left = _shared_out(env, blocks, device=generator.device)
    columns = _columns_of(seats, sides=tuple(sides))
    sums = TallySums([block.entrants for block in blocks], seats=seats, compare=True)
    row_of_env = sums.rows[block_of_env.cpu()]
    games = _game_hashes(env, radices, device=generator.device)
    first: list[torch.Tensor] = []
    for number in range(MAX_ROUNDS):
        if not bool(left.any()):
            break
        # A repetition has new seeds, because equal ones would begin the same episodes again.
        new = [derived_seed(seed, Stream.ENVIRONMENTS, number) for seed in seeds]
        plays = _together(
            [
                _MatchPlay(
                    env,
                    blocks=blocks,
                    block_of_env=block_of_env,
                    seats=seats,
                    own=own,
                    seeds=new if number else seeds,
                    generator=generator,
                    episodes=left,
                    progress=progress,
                    games=games,
                    # A `GameRecorder` without games to record costs almost nothing.
                    recorder=recorder or GameRecorder(),
                    openings=openings,
                    actions=actions,
                ).run(should_stop)
                for own in plays_of(seats)
            ]
        )
        environment = plays[0].environment
        points = torch.cat([play.points for play in plays], dim=1)
        sums.add(
            row_of_env[environment],
            seat_return=torch.cat([play.seat_return for play in plays], dim=1),
            # Plays are compared by rank, never by margin.
            seat_score=(points if len(plays) == 1 else sides_beaten(points))[:, columns],
            length=torch.stack([play.length for play in plays]).sum(dim=0),
            game=reduce(combined, [play.game for play in plays]),
        )
        first.append(torch.cat([play.first for play in plays], dim=1))
        left = left - torch.bincount(environment, minlength=env.num_envs).to(left.device)
    if bool(left.any()):
        raise EnvironmentFault(
            f"environments broke so often that after {MAX_ROUNDS} plays of both teams "
            f"{int(left.sum())} matches have no episode that neither of them broke"
        )
    return sums.tallies(first=torch.cat(first) if first else None)


def _columns_of(seats: tuple[Seat, ...], *, sides: tuple[str, ...]) -> list[int]:
    """Return each seat's column among the points of all plays, which it shares with its side."""
    return [
        play * len(sides) + sides.index(seats[index].side)
        for play, own in enumerate(plays_of(seats))
        for index in own
    ]


def _shared_out(
    env: BatchedEnv, blocks: Sequence[Block], *, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the block of each environment, and how many matches it plays. int64 [B], [B].

    Raises:
        ValueError: If the blocks need more environments than there are.
    """
    spare = env.num_envs - sum(block.num_envs for block in blocks)
    if spare < 0:
        raise ValueError(f"the blocks need {env.num_envs - spare} environments of {env.num_envs}")
    # Spare environments belong to the last block and are never active.
    sizes = [block.num_envs for block in blocks]
    block_of_env = block_of_envs([*sizes[:-1], sizes[-1] + spare], device=device)
    # The number of matches is fixed before the first step, because counting "the first N to
    # finish" would favour short games.
    matches_of_block = torch.tensor([block.num_matches for block in blocks], device=device)
    num_matches = matches_of_block[block_of_env]
    num_matches[env.num_envs - spare :] = 0
    return block_of_env, num_matches


def _game_hashes(
    env: BatchedEnv, radices: Mapping[str, tuple[int, ...] | None], *, device: torch.device
) -> GameHashes:
    first = None
    if any(places is not None for places in radices.values()):
        first = FirstDecisions(
            num_envs=env.num_envs, num_agents=len(env.agents), radices=radices, device=device
        )
    return GameHashes(num_envs=env.num_envs, device=device, first=first)


class _Episodes(NamedTuple):
    """Episodes of one play, on the CPU, in the order in which they ended.

    Attributes:
        key: Environment and number of each episode. int64 [N].
        environment: int64 [N].
        points: Numbers by which plays or sides are compared. float64 [N, sides].
        seat_return: Mean return of each seat's agents. float64 [N, Q].
        length: Calls of ``step``. int64 [N].
        game: Hashes of the decisions. int64 [N].
        first: First decision of each seat. int64 [N, Q].
    """

    key: torch.Tensor
    environment: torch.Tensor
    points: torch.Tensor
    seat_return: torch.Tensor
    length: torch.Tensor
    game: torch.Tensor
    first: torch.Tensor


def _together(plays: Sequence[_Episodes]) -> Sequence[_Episodes]:
    """Return the episodes that all plays have completed, in the same order."""
    if len(plays) == 1:
        return plays
    # Only episodes with the same seed are compared.
    shared = reduce(lambda keys, other: keys[torch.isin(keys, other)], [one.key for one in plays])
    found = []
    for play in plays:
        order = play.key.argsort()
        chosen = order[torch.isin(play.key[order], shared)]
        found.append(_Episodes(*(column[chosen] for column in play)))
    return found


class _MatchPlay(Play[Actor]):
    """One play of the matches, with a log of its episodes; resets the environments.

    Args:
        blocks: Players by block of environments.
        block_of_env: Block of each environment. int64 [B].
        seats: Seats of the environment.
        own: Indices of the seats in this play.
        episodes: Episodes that each environment plays. int64 [B].
        progress: Counter of steps.
        games: Hashes of the games in these environments.
        recorder: Records games.
        openings: Share of episodes that begin with random decisions, and how many.
        actions: Layouts by population, from which random decisions are drawn.
    """

    def __init__(
        self,
        env: BatchedEnv,
        *,
        blocks: Sequence[Block],
        block_of_env: torch.Tensor,
        seats: tuple[Seat, ...],
        own: tuple[int, ...],
        seeds: Sequence[int],
        generator: torch.Generator,
        episodes: torch.Tensor,
        progress: Progress | None,
        games: GameHashes,
        recorder: GameRecorder,
        openings: RandomOpenings,
        actions: Mapping[str, ActionLayout],
    ) -> None:
        own_seats = tuple(seats[index] for index in own)
        phases = [block.phase(seats, own) for block in blocks]
        tell_environments(env, phases, block_of_env=block_of_env)
        super().__init__(
            env,
            seeds=seeds,
            generator=generator,
            seated=SeatedPlayers(
                [tuple(block.actors[index] for index in own) for block in blocks],
                block_of_env=block_of_env,
                seats=own_seats,
                agents=env.agents,
            ),
            episodes=episodes,
            openings=openings,
            actions=actions,
        )
        self._is_compared = len(own) < len(seats)
        self._progress = progress
        self._games = games
        self._recorder = recorder
        self._mean = mean_of_agents(own_seats, agents=env.agents)
        self._members = agents_of_seats(own_seats, agents=env.agents)
        self._log: list[tuple[torch.Tensor, ...]] = []
        games.forget_all()
        recorder.begin(self.turn, seeds=seeds, seats=own, mean=self._mean)

    @torch.no_grad()
    def run(self, should_stop: Callable[[], bool]) -> _Episodes:
        """Play until each environment has completed its number of episodes."""
        while not self.is_done:
            if should_stop():
                raise Stopped("told to stop during matches")
            self.step()
        number, game, name, environment, returns, score, length = map(
            torch.cat, zip(*self._log, strict=True)
        )
        first = self._games.first
        return _Episodes(
            key=(environment << _NUMBER_BITS) + number,
            environment=environment,
            # A score of NaN means that plays are compared by the mean return of all agents.
            points=torch.where(score.isnan(), returns.mean(dim=1, keepdim=True), score.double()),
            # [N, A] @ [A, Q] -> [N, Q]
            seat_return=returns @ self._mean,
            length=length,
            game=game,
            first=torch.full((len(name), len(self._members)), NO_DECISION)
            if first is None
            else first.of(name, seats=self._members),
        )

    def _decided(self, actions: Mapping[str, torch.Tensor]) -> None:
        # `self.turn` has the agents of these decisions, so it is read before it is replaced.
        self._games.absorb(self.turn, actions)
        self._recorder.absorb(actions)

    def _record(self, turn: Turn) -> None:
        self._recorder.record(turn, lengths=self.open.length, returns=self.open.returns)
        if self._progress is not None:
            self._progress.advance()

    def _end(self, turn: Turn) -> None:
        over, number, first = played_to_the_end(turn), turn.episode, self._games.first
        if number is None:
            if self._is_compared:
                raise ValueError("cooperation needs environments that number their episodes")
            number = torch.zeros_like(over, dtype=torch.int64)
        # First decisions are looked up later by the game's number.
        name = number[over] if first is None else first.games(over)
        ended = self.open.ended(turn, over)
        self._log.append((number[over].cpu(), self._games.of(over), name.cpu(), *ended))
        # A void episode leaves no hash and no first decisions.
        self._games.forget(turn.episode_over)
