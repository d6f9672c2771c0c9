"""Plays T steps of B environments and keeps the decisions of those who learn.

Shapes: T steps, B environments, A agents, S decisions of a population at once, P agents of a
population, F features of a flattened observation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from arena.config import RandomOpenings
from arena.core import Actor, Algorithm
from arena.envs.base import BatchedEnv, Group, Turn
from arena.matches.actors import RandomActor
from arena.matches.match import Progress
from arena.matches.seated import NOBODY, Rows, SeatedPlayers, decide, equal_blocks
from arena.matches.tally import TallyBook
from arena.rollout.buffer import Rollout, RolloutBuffer
from arena.rollout.openings import Openings, random_decisions
from arena.types import Entrant, PolicyId, Seat, Tally, population_of


@dataclass(eq=False, slots=True, kw_only=True)
class Learning:
    """A policy that learns while it plays.

    Attributes:
        policy: Its id.
        algorithm: Its live weights.
        reward_weights: Of the components of its reward, on the environments' device. float32 [R].
            None: it learns from the environment's own reward.
    """

    policy: PolicyId
    algorithm: Algorithm
    reward_weights: torch.Tensor | None = None

    @property
    def population(self) -> str:
        """Whose agents it plays."""
        return population_of(self.policy)


SeatedPlayer = Actor | Learning


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingBlock:
    """Who plays in one block of environments.

    Attributes:
        entrants: The names in the tally, one per seat.
        players: Frozen actors, and those that learn, one per seat.
    """

    entrants: tuple[Entrant, ...]
    players: tuple[SeatedPlayer, ...]


class Collector:
    """Collects rollouts from one start of the environments.

    The loop that uses it::

        collector = Collector(env, ...)
        while budget lasts:
            for learning, rollout in collector.collect():
                learning.algorithm.update(rollout, generator=generator)

    Each block of environments has its players for good, so that opponents never change within an
    episode. Owned by one thread; resets ``env`` when it is made.

    Args:
        env: Steps the environments.
        seeds: One per environment.
        blocks: Who plays; environments are divided among them as equally as possible.
        seats: The environment's seats.
        sides: Names of the sides, the columns of ``Turn.score``.
        populations: Agents by population.
        num_actions: By population; what random openings draw from where there is no mask.
        openings: How many episodes start with random decisions.
        generator: Of all actions and openings, on the environment's device.
        progress: Told of every step.

    Raises:
        ValueError: If nobody learns, or a policy that learns has a seat of another population.
    """

    def __init__(
        self,
        env: BatchedEnv,
        *,
        seeds: Sequence[int],
        blocks: Sequence[TrainingBlock],
        seats: tuple[Seat, ...],
        sides: Sequence[str],
        populations: Mapping[str, tuple[str, ...]],
        num_actions: Mapping[str, int],
        openings: RandomOpenings,
        generator: torch.Generator,
        progress: Progress,
    ) -> None:
        self._env = env
        self._generator = generator
        self._progress = progress
        device = generator.device
        block_of_env = equal_blocks(len(blocks), num_envs=env.num_envs, device=device)
        # In cooperation home and away have the same agents; while training only home plays.
        played = seats if len(sides) > 1 else seats[:1]
        self._seated = SeatedPlayers(
            [block.players[: len(played)] for block in blocks],
            block_of_env=block_of_env,
            seats=played,
            agents=env.agents,
        )
        _check_seats(blocks, seats=seats)
        self._book = TallyBook(
            [block.entrants for block in blocks],
            block_of_env=block_of_env,
            agents=env.agents,
            sides=sides,
            seats=seats,
        )
        self._random = {name: RandomActor(number) for name, number in num_actions.items()}
        self._turn = env.reset(seeds)
        self._openings = Openings(
            openings, num_envs=env.num_envs, num_agents=len(env.agents), generator=generator
        )
        everywhere = torch.ones(env.num_envs, dtype=torch.bool, device=device)
        self._book.void(self._openings.begin(everywhere))
        learning = [
            (index, player)
            for index, player in enumerate(self._seated.players)
            if isinstance(player, Learning)
        ]
        if not learning:
            raise ValueError("nobody learns in these blocks")
        self._num_steps = max(player.algorithm.rollout_length for _, player in learning)
        self._recorders = [
            self._recorder(player, index=index, agents=populations[player.population])
            for index, player in learning
        ]
        self.agent_steps: dict[PolicyId, int] = {
            recorder.learning.policy: 0 for recorder in self._recorders
        }
        """Decisions of each policy's network so far; not openings, not frozen seats."""

    def _recorder(self, learning: Learning, *, index: int, agents: tuple[str, ...]) -> _Recorder:
        columns = torch.tensor(
            [self._env.agents.index(agent) for agent in agents], device=self._generator.device
        )
        return _Recorder(
            learning,
            index=index,
            buffer=RolloutBuffer(
                length=self._num_steps, agents=columns, reward_weights=learning.reward_weights
            ),
            agents=columns,
            generator=self._generator,
        )

    def tallies(self) -> tuple[Tally, ...]:
        """The matches so far. Episodes that began with a random opening are none."""
        return self._book.tallies()

    def episodes(self) -> tuple[Tally, ...]:
        """All episodes so far, matches or not; for statistics only."""
        return self._book.episodes()

    def collect(self) -> tuple[tuple[Learning, Rollout], ...]:
        """Play one rollout: the longest ``rollout_length`` of those who learn.

        Returns:
            One rollout per policy that learns.

        Raises:
            EnvironmentFault: If an environment broke its contract.
        """
        # Not inference_mode: what is stored here goes through a backward pass later.
        with torch.no_grad():
            for t in range(self._num_steps):
                self._step(t)
            return tuple(
                (recorder.learning, recorder.finish(self._turn, seated=self._seated))
                for recorder in self._recorders
            )

    def _step(self, t: int) -> None:
        turn = self._turn
        random = self._openings.claim(turn.groups)
        steps_before = sum(self.agent_steps.values())
        actions = {
            population: self._decide(t, population, group=group, random=random)
            for population, group in turn.groups.items()
        }
        turn = self._turn = self._env.step(actions)
        for recorder in self._recorders:
            recorder.store_result(t, turn, seated=self._seated)
        self._book.record(turn)
        if bool(turn.episode_over.any()):
            self._book.void(self._openings.begin(turn.episode_over))
        self._progress.advance(sum(self.agent_steps.values()) - steps_before)

    def _decide(
        self, t: int, population: str, *, group: Group, random: torch.Tensor | None
    ) -> torch.Tensor:
        """Actions of one population. int64 [B, S]."""
        owner = self._seated.owners(group.agent_index, active=None)
        action = torch.zeros_like(owner)
        if random is not None:
            drawn = random_decisions(random, group.agent_index)
            owner = owner.masked_fill(drawn, NOBODY)
            decide(
                self._random[population],
                group,
                where=drawn,
                action=action,
                agents=self._env.agents,
                generator=self._generator,
            )
        for recorder in self._recorders:
            if recorder.learning.population == population:
                self.agent_steps[recorder.learning.policy] += recorder.decide(
                    t, group, where=owner == recorder.index, action=action
                )
        self._seated.play_frozen(
            population, group, owner=owner, action=action, generator=self._generator
        )
        return action


class _Recorder:
    """Lets one policy decide, and keeps its decisions in its buffer.

    Args:
        learning: The policy.
        index: Of it among the seated players.
        buffer: Of its decisions.
        agents: Columns of its population's agents in ``Turn.reward``. int64 [P].
        generator: Of its actions.
    """

    def __init__(
        self,
        learning: Learning,
        *,
        index: int,
        buffer: RolloutBuffer,
        agents: torch.Tensor,
        generator: torch.Generator,
    ) -> None:
        self.learning = learning
        self.index = index
        self._buffer = buffer
        self._agents = agents
        self._generator = generator

    def decide(self, t: int, group: Group, *, where: torch.Tensor, action: torch.Tensor) -> int:
        """Sample the decisions ``where`` (bool [B, S]) into ``action``, return their number."""
        rows = Rows(group, where=where)
        log_prob = torch.zeros(where.shape, device=where.device)
        value = torch.zeros(where.shape, device=where.device)
        if len(rows):
            chosen, chosen_log_prob, chosen_value = self.learning.algorithm.act(
                rows.observation, rows.action_mask, generator=self._generator
            )
            rows.put(action, chosen)
            rows.put(log_prob, chosen_log_prob)
            rows.put(value, chosen_value)
        self._buffer.store(t, group, action=action, log_prob=log_prob, value=value, trained=where)
        return len(rows)

    def store_result(self, t: int, turn: Turn, *, seated: SeatedPlayers[SeatedPlayer]) -> None:
        """Keep what a step brought; agents that were cut off bootstrap from what they saw last."""
        population = self.learning.population
        truncated = turn.truncated[:, self._agents]
        mine = truncated & (seated.table[:, self._agents] == self.index)
        final_value = torch.zeros(mine.shape, device=mine.device)
        if bool(mine.any()):
            final_value[mine] = self.learning.algorithm.value(
                turn.final_observation[population][mine]
            )
        self._buffer.store_result(t, turn, final_value=final_value)

    def finish(self, turn: Turn, *, seated: SeatedPlayers[SeatedPlayer]) -> Rollout:
        """Bootstrap from the decisions that are asked for next, and hand out the rollout."""
        group = turn.groups[self.learning.population]
        owner = seated.owners(group.agent_index, active=None)
        rows = Rows(group, where=owner == self.index)
        value = torch.zeros(owner.shape, device=owner.device)
        if len(rows):
            rows.put(value, self.learning.algorithm.value(rows.observation))
        return self._buffer.finish(
            group=group,
            value=value,
            gamma=self.learning.algorithm.gamma,
            gae_lambda=self.learning.algorithm.gae_lambda,
        )


def _check_seats(blocks: Sequence[TrainingBlock], *, seats: tuple[Seat, ...]) -> None:
    for block in blocks:
        for seat, player in zip(seats, block.players, strict=True):
            if isinstance(player, Learning) and player.population != seat.population:
                raise ValueError(
                    f"{player.policy} cannot sit in seat {seat.name!r} of population "
                    f"{seat.population!r}"
                )
