"""Plays T steps of B environments and keeps the decisions of those who learn.

Shapes: T steps, B environments, A agents, S decisions of a population at once, P agents of a
population, F features of a flattened observation, H numbers of a state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import torch

from arena.config import RandomOpenings
from arena.envs.actions import ActionLayout
from arena.envs.base import BatchedEnv, Group
from arena.envs.critic import CriticInput
from arena.matches.actors import RandomActor
from arena.matches.match import Progress
from arena.matches.seated import NOBODY, SeatedPlayers, decide, equal_blocks
from arena.matches.seating import HOME, seat_teams
from arena.matches.tally import TallyBook
from arena.rollout.buffer import Rollout, RolloutBuffer
from arena.rollout.critic_rows import CriticRows
from arena.rollout.openings import Openings, random_decisions
from arena.rollout.recorder import Learning, Recorder, SeatedPlayer
from arena.types import Entrant, PolicyId, Seat, Tally


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
        critics: By population, what its value network reads beside observations.
        product_dtypes: By population, in which several of its frozen policies act in one call.

    Raises:
        ValueError: If nobody learns, or a policy that learns has a seat of another population, or
            values that are not known how to be computed.
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
        critics: Mapping[str, CriticInput] = MappingProxyType({}),
        product_dtypes: Mapping[str, torch.dtype] = MappingProxyType({}),
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
            product_dtypes=product_dtypes,
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
        self._critics = {
            name: CriticRows(critic, agents=env.agents, populations=populations, device=device)
            for name, critic in critics.items()
            if any(player.population == name for _, player in learning)
        }
        for critic_rows in self._critics.values():
            critic_rows.show(self._turn)
        self._num_steps = max(player.algorithm.rollout_length for _, player in learning)
        self._recorders = [
            self._recorder(player, index=index, agents=populations[player.population])
            for index, player in learning
        ]
        self.agent_steps: dict[PolicyId, int] = {
            recorder.learning.policy: 0 for recorder in self._recorders
        }
        """Decisions of each policy's network so far; not openings, not frozen seats."""

    def _recorder(self, learning: Learning, *, index: int, agents: tuple[str, ...]) -> Recorder:
        columns = torch.tensor(
            [self._env.agents.index(agent) for agent in agents], device=self._generator.device
        )
        return Recorder(
            learning,
            index=index,
            buffer=RolloutBuffer(
                length=self._num_steps, agents=columns, reward_weights=learning.reward_weights
            ),
            agents=columns,
            memory=self._seated.memory,
            critic=self._critics.get(learning.population),
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
        for critic_rows in self._critics.values():
            critic_rows.show(turn)
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


def _check_seats(blocks: Sequence[TrainingBlock], *, seats: tuple[Seat, ...]) -> None:
    for block in blocks:
        for seat, player in zip(seats, block.players, strict=True):
            if isinstance(player, Learning) and player.population != seat.population:
                raise ValueError(
                    f"{player.policy} cannot sit in seat {seat.name!r} of population "
                    f"{seat.population!r}"
                )
