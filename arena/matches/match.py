"""Matches between frozen players, each environment a number of them that is fixed beforehand.

Every match that starts is played to its end and counts. Shapes: B environments, A agents, M matches
of an environment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

import torch

from arena.core import Actor
from arena.envs.base import BatchedEnv, Group, Phase, Turn
from arena.envs.batched.scoring import sides_beaten
from arena.envs.phase import players_of_agents, tell_environments
from arena.errors import EnvironmentFault
from arena.games.recording import GameRecorder
from arena.matches.distinct import NO_DECISION, FirstDecisions, GameHashes, combined
from arena.matches.seated import SeatedPlayers, block_of_envs
from arena.matches.seating import is_cooperation, seat_teams
from arena.matches.seeds import Stream, derived_seed
from arena.matches.tally import (
    TallyBook,
    agents_of_seats,
    mean_of_agents,
    played_to_the_end,
)
from arena.matches.tally_sums import TallySums
from arena.types import Entrant, Seat, Tally

# An environment and the number of its episode are one int64: the number has these bits.
_NUMBER_BITS = 32

MAX_ROUNDS = 16
"""Plays of both teams, in cooperation, until each match has an episode that is void for neither."""


class Progress(Protocol):
    """Counter of a loop's turns, which shows that it goes on."""

    def advance(self, agent_steps: int = 0) -> None:
        """Count one turn of the loop."""


class Stopped(Exception):
    """Play was stopped before its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Environments in which the same players sit.

    Attributes:
        entrants: Names in the tally, one per seat.
        actors: Actors, one per seat.
        num_envs: Number of environments.
        num_matches: Number of matches that each of them plays.
        players: Names that environments are told, one per seat; none: the entrants.
    """

    entrants: tuple[Entrant, ...]
    actors: tuple[Actor, ...]
    num_envs: int
    num_matches: int
    players: tuple[str, ...] = ()

    def phase(self, seats: Sequence[Seat], own: Sequence[int]) -> Phase:
        """Return what its environments are told, with the players of some seats."""
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

    A pairing's matches are split over its environments as evenly as they go, so that each
    environment's number is fixed and the pairing's total exact.

    Args:
        num_matches: Number of matches of each pairing.
        num_envs: Number of environments that step as one batch.

    Returns:
        Waves that are played one after the other; there is more than one if there are more
        pairings than environments.
    """
    waves = []
    # Each pairing of a wave needs an environment of its own.
    for start in range(0, len(num_matches), num_envs):
        wave = range(start, min(start + num_envs, len(num_matches)))
        counts = [num_matches[pairing] for pairing in wave]
        # The wave lasts as long as its busiest environment.
        longest = _fewest_rounds(counts, num_envs=num_envs)
        shares: list[Share] = []
        for pairing, count in zip(wave, counts, strict=True):
            shares.extend(_split(pairing, count=count, longest=longest))
        waves.append(tuple(shares))
    return tuple(waves)


def _fewest_rounds(counts: Sequence[int], *, num_envs: int) -> int:
    """Return the smallest M for which environments of at most M matches each suffice."""
    # M >= ceil(sum of counts / B): a bound from below that rounding up per pairing may exceed
    rounds = max(1, -(-sum(counts) // num_envs))
    while sum(-(-count // rounds) for count in counts) > num_envs:
        rounds += 1
    return rounds


def _split(pairing: int, *, count: int, longest: int) -> list[Share]:
    if count == 0:
        return []
    # ceil(count / M); num_more of them play one match more than the others
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
) -> tuple[Tally, ...]:
    """Play every block's matches to their ends.

    Actors sample with ``generator``. In cooperation the home team plays its episodes, then the away
    team the same seeded ones; of each pair the higher outcome wins, by default the mean return of
    all agents. Where an episode is void for one team, both play another one.

    Args:
        env: Environments, stepped as one; the first blocks have the first ones. Reset here.
        blocks: Players by block of environments. Environments beyond their sum are halted.
        seats: Seats of the environment.
        sides: Agents that share one score, by side.
        seeds: Seeds, one per environment.
        generator: Source of all actions, on the environment's device.
        progress: Counter of steps.
        should_stop: Called before every step; True stops.
        radices: Place values of choices in an action's index, by population, where first decisions
            are counted (`arena.matches.openings.radices`).
        recorder: Records games of some environments.

    Returns:
        One tally per distinct tuple of entrants.

    Raises:
        ValueError: If the blocks need more environments than there are.
        Stopped: If ``should_stop`` returned True.
        EnvironmentFault: If an environment broke its contract.
    """
    if not blocks:
        return ()
    block_of_env, num_matches = _shared_out(env, blocks, device=generator.device)
    play = _Play(
        env,
        num_matches=num_matches,
        seeds=seeds,
        generator=generator,
        progress=progress,
        should_stop=should_stop,
        radices=radices,
        recorder=recorder,
    )
    if is_cooperation(sides):
        return _compare_returns(play, blocks=blocks, block_of_env=block_of_env, seats=seats)
    return _compare_scores(
        play, blocks=blocks, block_of_env=block_of_env, seats=seats, sides=tuple(sides)
    )


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
    # Spare environments count to the last block and are never active.
    sizes = [block.num_envs for block in blocks]
    block_of_env = block_of_envs([*sizes[:-1], sizes[-1] + spare], device=device)
    # Fixed before the first step: "the first N to finish" would favour short games.
    matches_of_block = torch.tensor([block.num_matches for block in blocks], device=device)
    num_matches = matches_of_block[block_of_env]
    num_matches[env.num_envs - spare :] = 0
    return block_of_env, num_matches


def _compare_scores(
    play: _Play,
    *,
    blocks: Sequence[Block],
    block_of_env: torch.Tensor,
    seats: tuple[Seat, ...],
    sides: tuple[str, ...],
) -> tuple[Tally, ...]:
    book = TallyBook(
        [block.entrants for block in blocks],
        block_of_env=block_of_env,
        agents=play.agents,
        sides=sides,
        seats=seats,
        games=play.games,
    )
    seated = SeatedPlayers(
        [block.actors for block in blocks],
        block_of_env=block_of_env,
        seats=seats,
        agents=play.agents,
    )
    phases = [block.phase(seats, range(len(seats))) for block in blocks]
    tell_environments(play.env, phases, block_of_env=block_of_env)
    play.run(seated, seats=seats, of=range(len(seats)), record=book.record)
    return book.tallies()


def _compare_returns(
    play: _Play, *, blocks: Sequence[Block], block_of_env: torch.Tensor, seats: tuple[Seat, ...]
) -> tuple[Tally, ...]:
    distinct = tuple(dict.fromkeys(block.entrants for block in blocks))
    row_of = {entrants: row for row, entrants in enumerate(distinct)}
    row_of_block = torch.tensor([row_of[block.entrants] for block in blocks])
    row_of_env = row_of_block[block_of_env.cpu()]
    sums = TallySums(distinct, seats=seats, compare=True)
    seeds = play.seeds
    first: list[torch.Tensor] = []
    for number in range(1, MAX_ROUNDS + 1):
        logs = _play_teams(play, blocks=blocks, block_of_env=block_of_env, seats=seats)
        # Only episodes of one seed are compared: those that both teams have played to the end.
        keys = [log.keys for log in logs]
        rows = [torch.isin(own, other) for own, other in zip(keys, reversed(keys), strict=True)]
        env = keys[0][rows[0]] >> _NUMBER_BITS
        returns, scores, lengths, games, decisions = zip(
            *(log.rows(chosen) for log, chosen in zip(logs, rows, strict=True)), strict=True
        )
        sums.add(
            row_of_env[env],
            seat_return=torch.cat(returns, dim=1),
            seat_score=torch.repeat_interleave(
                sides_beaten(torch.cat(scores, dim=1)),
                torch.tensor([own.shape[1] for own in returns]),
                dim=1,
            ),
            length=torch.stack(lengths).sum(dim=0),
            game=combined(*games),
        )
        first.append(torch.cat(decisions, dim=1))
        num_played = torch.bincount(env, minlength=len(row_of_env))
        play.num_matches = play.num_matches - num_played.to(play.num_matches.device)
        if not bool(play.num_matches.any()):
            return sums.tallies(first=torch.cat(first))
        # The same seeds would begin the same episodes again.
        play.seeds = [derived_seed(seed, Stream.ENVIRONMENTS, number) for seed in seeds]
    raise EnvironmentFault(
        f"environments broke so often that after {MAX_ROUNDS} plays of both teams "
        f"{int(play.num_matches.sum())} matches have no episode that neither of them broke"
    )


def _play_teams(
    play: _Play, *, blocks: Sequence[Block], block_of_env: torch.Tensor, seats: tuple[Seat, ...]
) -> list[_EpisodeLog]:
    """Play once for each team, home first; `_Play.run` resets to the same seeds."""
    logs = []
    teams = seat_teams(seats)
    for team in dict.fromkeys(teams):
        own = [index for index, name in enumerate(teams) if name == team]
        own_seats = tuple(seats[index] for index in own)
        log = _EpisodeLog(play.num_matches, agents=play.agents, seats=own_seats, games=play.games)
        seated = SeatedPlayers(
            [tuple(block.actors[index] for index in own) for block in blocks],
            block_of_env=block_of_env,
            seats=own_seats,
            agents=play.agents,
        )
        phases = [block.phase(seats, own) for block in blocks]
        tell_environments(play.env, phases, block_of_env=block_of_env)
        play.run(seated, seats=own_seats, of=own, record=log.record)
        logs.append(log)
    return logs


class _EpisodeLog:
    """Returns and length of every episode of one team, by environment, then episode.

    Attributes:
        returns: Mean return of each seat's agents. float64 [episodes, seats of the team].
        scores: Scores that teams are compared by: the environment's outcome, or, where that is the
            return, the mean return of all agents. float64 [episodes, 1].
        lengths: Calls of ``step``. int64 [episodes].
        games: Hashes of the decisions. int64 [episodes].
        numbers: Numbers of the games, by which first decisions are known. int64 [episodes].
        keys: Environment and number of each episode, ascending. int64 [episodes].
    """

    def __init__(
        self,
        num_matches: torch.Tensor,
        *,
        agents: tuple[str, ...],
        seats: tuple[Seat, ...],
        games: GameHashes,
    ) -> None:
        counts = num_matches.cpu()
        # Row of each environment's next episode; an environment's rows are side by side.
        self._next = counts.cumsum(0) - counts
        self._mean = mean_of_agents(seats, agents=agents)
        self._return = torch.zeros(len(counts), len(agents), dtype=torch.float64)
        self._length = torch.zeros(len(counts), dtype=torch.int64)
        num_episodes = int(counts.sum())
        self.returns = torch.zeros(num_episodes, len(seats), dtype=torch.float64)
        self.scores = torch.zeros(num_episodes, 1, dtype=torch.float64)
        self.lengths = torch.zeros(num_episodes, dtype=torch.int64)
        self.games = torch.zeros(num_episodes, dtype=torch.int64)
        self.numbers = torch.zeros(num_episodes, dtype=torch.int64)
        self.keys = torch.zeros(num_episodes, dtype=torch.int64)
        self._hashes = games
        self._members = agents_of_seats(seats, agents=agents)

    def rows(self, chosen: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return returns, scores, lengths, games and first decisions of some episodes
        (bool [episodes]).
        """
        first = self._hashes.first
        decisions = (
            torch.full_like(self.returns, NO_DECISION, dtype=torch.int64)[chosen]
            if first is None
            else first.of(self.numbers[chosen], seats=self._members)
        )
        columns = (self.returns, self.scores, self.lengths, self.games)
        return *(column[chosen] for column in columns), decisions

    def record(self, turn: Turn) -> None:
        if turn.episode is None:
            raise ValueError("cooperation needs environments that number their episodes")
        self._return += turn.reward.cpu()
        self._length += 1
        over = played_to_the_end(turn).cpu()
        places = self._next[over]
        self.returns[places] = self._return[over] @ self._mean
        objective = turn.score[over].cpu().double()
        mean_return = self._return[over].mean(dim=1, keepdim=True)
        # NaN: the environment names the return as its outcome.
        self.scores[places] = torch.where(objective.isnan(), mean_return, objective)
        self.lengths[places] = self._length[over]
        self.keys[places] = (over.nonzero().squeeze(1) << _NUMBER_BITS) + turn.episode.cpu()[over]
        # Before forget, which begins the next game there.
        self.games[places] = self._hashes.of(played_to_the_end(turn))
        if self._hashes.first is not None:
            self.numbers[places] = self._hashes.first.games(played_to_the_end(turn)).cpu()
        self._hashes.forget(turn.episode_over)
        self._next[over] += 1
        # Void episodes, too: nothing of them is kept.
        ended = turn.episode_over.cpu()
        self._return[ended] = 0.0
        self._length[ended] = 0


class _Play:
    """Runs environments until each has ended its number of matches."""

    def __init__(
        self,
        env: BatchedEnv,
        *,
        num_matches: torch.Tensor,
        seeds: Sequence[int],
        generator: torch.Generator,
        progress: Progress | None,
        should_stop: Callable[[], bool],
        radices: Mapping[str, tuple[int, ...] | None],
        recorder: GameRecorder | None,
    ) -> None:
        self.env = env
        self.seeds = seeds
        self._generator = generator
        self._progress = progress
        self._should_stop = should_stop
        # One that records nothing costs next to nothing.
        self._recorder = recorder or GameRecorder()
        self.num_matches = num_matches
        self.agents = env.agents
        num_envs, device = env.num_envs, generator.device
        first = FirstDecisions(
            num_envs=num_envs, num_agents=len(env.agents), radices=radices, device=device
        )
        has_index = any(places is not None for places in radices.values())
        self.games = GameHashes(
            num_envs=num_envs, device=device, first=first if has_index else None
        )

    def run(
        self,
        seated: SeatedPlayers[Actor],
        *,
        seats: tuple[Seat, ...],
        of: Sequence[int],
        record: Callable[[Turn], None],
    ) -> None:
        """Play once from the start; ``record`` sees every turn.

        Args:
            seated: Players of the seats that take part.
            seats: These seats.
            of: Their indices among all.
            record: Callback with each turn.
        """
        turn = self.env.reset(self.seeds)
        self._recorder.begin(
            turn,
            seeds=self.seeds,
            seats=tuple(of),
            mean=mean_of_agents(seats, agents=self.agents),
        )
        self.games.forget_all()
        remaining = self.num_matches.clone()
        active = remaining > 0
        if not bool(active.all()):
            self.env.halt(~active)
        while bool(active.any()):
            if self._should_stop():
                raise Stopped("told to stop during matches")
            actions = self._actions(turn, seated=seated, active=active)
            # Before the step: which decisions these are is in the turn that asked for them.
            self.games.absorb(turn, actions)
            self._recorder.absorb(actions)
            turn = self.env.step(actions)
            seated.recurrent_state.reset(turn)
            record(turn)
            self._recorder.record(turn)
            if self._progress is not None:
                self._progress.advance()
            # A void episode does not count: another one is played.
            remaining -= played_to_the_end(turn).long()
            done = active & (remaining <= 0)
            if bool(done.any()):
                self.env.halt(done)
                active = active & ~done

    def _actions(
        self, turn: Turn, *, seated: SeatedPlayers[Actor], active: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        return {
            population: self._decide(population, group, seated=seated, active=active)
            for population, group in turn.groups.items()
        }

    def _decide(
        self, population: str, group: Group, *, seated: SeatedPlayers[Actor], active: torch.Tensor
    ) -> torch.Tensor:
        owner = seated.owners(group.agent_index, active=active)
        action = group.new_actions()
        with torch.no_grad():
            seated.play_frozen(
                population, group, owner=owner, action=action, generator=self._generator
            )
        return action
