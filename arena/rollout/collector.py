"""Plays T steps of B environments and keeps the decisions of those who learn.

Shapes: T steps, B environments, A agents, S decisions of a population at once, P agents of a
population, F features of a flattened observation, H numbers of a state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from arena.config import RandomOpenings
from arena.core import Actor, Algorithm, RememberingAlgorithm, state_size
from arena.envs.actions import ActionLayout
from arena.envs.base import BatchedEnv, Group, Turn
from arena.matches.actors import RandomActor
from arena.matches.match import Progress
from arena.matches.memory import Memory
from arena.matches.seated import NOBODY, Rows, SeatedPlayers, decide, equal_blocks
from arena.matches.seating import HOME, seat_teams
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

    @property
    def state_size(self) -> int:
        """H; 0: it has no memory."""
        return state_size(self.algorithm)

    @property
    def remembering(self) -> RememberingAlgorithm | None:
        """The algorithm, where its policy has a memory."""
        algorithm: object = self.algorithm
        if self.state_size and isinstance(algorithm, RememberingAlgorithm):
            return algorithm
        return None


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
        actions: Layouts by population; what random openings draw from.
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
        actions: Mapping[str, ActionLayout],
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
        played = seats if len(sides) > 1 else seats[: seat_teams(seats).count(HOME)]
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
        self._random = {name: RandomActor(layout) for name, layout in actions.items()}
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
            memory=self._seated.memory,
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
        self._seated.memory.forget(turn)
        self._book.record(turn)
        if bool(turn.episode_over.any()):
            self._book.void(self._openings.begin(turn.episode_over))
        self._progress.advance(sum(self.agent_steps.values()) - steps_before)

    def _decide(
        self, t: int, population: str, *, group: Group, random: torch.Tensor | None
    ) -> torch.Tensor:
        """Actions of one population. int64 [B, S] or float32 [B, S, K]."""
        owner = self._seated.owners(group.agent_index, active=None)
        action = group.new_actions()
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
        memory: What it remembers, where it does.
        generator: Of its actions.
    """

    def __init__(
        self,
        learning: Learning,
        *,
        index: int,
        buffer: RolloutBuffer,
        agents: torch.Tensor,
        memory: Memory,
        generator: torch.Generator,
    ) -> None:
        self.learning = learning
        self.index = index
        self._buffer = buffer
        self._agents = agents
        self._memory = memory
        self._generator = generator

    def decide(self, t: int, group: Group, *, where: torch.Tensor, action: torch.Tensor) -> int:
        """Sample the decisions ``where`` (bool [B, S]) into ``action``, return their number."""
        rows = Rows(group, where=where)
        log_prob = torch.zeros(where.shape, device=where.device)
        value = torch.zeros(where.shape, device=where.device)
        state = self._no_states(where)
        if len(rows):
            chosen, chosen_log_prob, chosen_value = self._act(rows, group, state=state)
            rows.put(action, chosen)
            rows.put(log_prob, chosen_log_prob)
            rows.put(value, chosen_value)
        self._buffer.store(
            t,
            group,
            action=action,
            log_prob=log_prob,
            value=value,
            trained=where,
            state=state,
        )
        return len(rows)

    def _no_states(self, where: torch.Tensor) -> torch.Tensor | None:
        """Zeros [B, S, H], where it remembers."""
        size = self.learning.state_size
        return torch.zeros(*where.shape, size, device=where.device) if size else None

    def _act(
        self, rows: Rows, group: Group, *, state: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Actions, log-probabilities and values of some rows.

        Where it remembers, what it did before is put into ``state``, and what it does now kept.
        """
        remembering = self.learning.remembering
        if remembering is None or state is None:
            return self.learning.algorithm.act(
                rows.observation, rows.action_mask, generator=self._generator
            )
        places = rows.take(self._memory.places(group.agent_index))
        before = self._memory.recall(places, size=remembering.state_size)
        rows.put(state, before)
        action, log_prob, value, after = remembering.act_from(
            rows.observation, rows.action_mask, state=before, generator=self._generator
        )
        self._memory.keep(places, after)
        return action, log_prob, value

    def _value(self, observation: torch.Tensor, *, places: torch.Tensor) -> torch.Tensor:
        """Of observations [N, F] after what is remembered at ``places`` (int64 [N])."""
        remembering = self.learning.remembering
        if remembering is None:
            return self.learning.algorithm.value(observation)
        state = self._memory.recall(places, size=remembering.state_size)
        return remembering.value_from(observation, state=state)

    def store_result(self, t: int, turn: Turn, *, seated: SeatedPlayers[SeatedPlayer]) -> None:
        """Keep what a step brought; agents that were cut off bootstrap from what they saw last."""
        population = self.learning.population
        truncated = turn.truncated[:, self._agents]
        mine = truncated & (seated.table[:, self._agents] == self.index)
        final_value = torch.zeros(mine.shape, device=mine.device)
        if bool(mine.any()):
            places = self._memory.places(self._agents.expand(mine.shape))
            final_value[mine] = self._value(
                turn.final_observation[population][mine], places=places[mine]
            )
        self._buffer.store_result(t, turn, final_value=final_value)

    def finish(self, turn: Turn, *, seated: SeatedPlayers[SeatedPlayer]) -> Rollout:
        """Bootstrap from the decisions that are asked for next, and hand out the rollout."""
        group, remembering = turn.groups[self.learning.population], self.learning.remembering
        owner = seated.owners(group.agent_index, active=None)
        rows = Rows(group, where=owner == self.index)
        value = torch.zeros(owner.shape, device=owner.device)
        if len(rows):
            places = rows.take(self._memory.places(group.agent_index))
            rows.put(value, self._value(rows.observation, places=places))
        return self._buffer.finish(
            group=group,
            value=value,
            gamma=self.learning.algorithm.gamma,
            gae_lambda=self.learning.algorithm.gae_lambda,
            needs_transitions=self.learning.algorithm.needs_transitions,
            bptt_length=None if remembering is None else remembering.bptt_length,
        )


def _check_seats(blocks: Sequence[TrainingBlock], *, seats: tuple[Seat, ...]) -> None:
    for block in blocks:
        for seat, player in zip(seats, block.players, strict=True):
            if isinstance(player, Learning) and player.population != seat.population:
                raise ValueError(
                    f"{player.policy} cannot sit in seat {seat.name!r} of population "
                    f"{seat.population!r}"
                )
