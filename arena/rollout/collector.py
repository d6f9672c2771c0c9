"""Plays T steps of B environments and keeps the decisions of the policies that learn.

Shapes: T steps, B environments, A agents, S decisions of a population at once, P agents of a
population, F features of a flattened observation, H numbers of a recurrent state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import torch

from arena.config import RandomOpenings
from arena.envs.base import BatchedEnv, Group, Turn
from arena.envs.spaces.critic_input import CriticInput
from arena.experience import Rollout
from arena.matches.play import Play, Progress
from arena.matches.recurrent_state import RecurrentState
from arena.matches.seated import SeatedPlayers, equal_blocks
from arena.matches.seating import plays_of
from arena.matches.tally import TallyBook
from arena.rollout.buffer import RolloutBuffer
from arena.rollout.calls import rollout_calls
from arena.rollout.critic_rows import CriticRows
from arena.rollout.measured import Measured, Measures, with_successes
from arena.rollout.phases import Phases
from arena.rollout.recorder import Learning, Recorder, SeatedPlayer, learning_in
from arena.spaces import ActionLayout
from arena.types import Entrant, PolicyId, Seat, Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingBlock:
    """The players of one block of environments.

    Attributes:
        entrants: Names in the tally, one per seat.
        players: Frozen actors and policies that learn, one per seat.
    """

    entrants: tuple[Entrant, ...]
    players: tuple[SeatedPlayer, ...]


class Collector(Play[SeatedPlayer]):
    """Collects rollouts of episodes that continue across rollouts and assignments.

    The loop that uses it::

        collector = Collector(env, ...)
        while budget lasts:
            for learning, rollout in collector.collect():
                learning.algorithm.update(rollout, generator=generator)
        collector.go_on(...)    # with other opponents, and so on

    An environment keeps its players until its episode ends, so that opponents never change within
    one. Owned by one thread; resets ``env`` when it is made, and owns it from then on.

    Args:
        env: Environments, stepped as one.
        seeds: Seeds, one per environment.
        blocks: Players; environments are divided among the blocks as equally as possible.
        seats: Seats of the environment.
        sides: Names of the sides, the columns of ``Turn.score``.
        populations: Agents by population.
        actions: Layouts by population, from which random openings draw.
        openings: Share and length of random openings.
        generator: Source of all actions and openings, on the environment's device.
        progress: Counter of steps.
        critics: Inputs of centralized critics, by population.
        product_dtypes: Dtype, by population, in which several frozen policies act in one call.
        episodes: Whole episodes that each environment plays before it is halted. None: there is no
            limit, and environments are spread over the phases of an episode.
        episode_length: Expected calls of ``step`` in an episode; 0: not known.
        success_return: Return of an agent from which on its episode is a success; None: the
            environment reports success.

    Raises:
        ValueError: If no policy learns, or one has a seat of another population or a centralized
            critic without an input.
    """

    _OPENINGS_ARE_VOID = True

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
        episodes: int | None = None,
        episode_length: float = 0.0,
        success_return: float | None = None,
    ) -> None:
        self._progress = progress
        self._seats = seats
        self._sides = tuple(sides)
        self._populations = populations
        self._product_dtypes = product_dtypes
        self._success_return = success_return
        device = generator.device
        learning = learning_in([block.players for block in blocks], seats=seats)
        self._block_of_env = equal_blocks(len(blocks), num_envs=env.num_envs, device=device)
        super().__init__(
            env,
            seeds=seeds,
            generator=generator,
            seated=self._seat(env, blocks, recurrent_state=None),
            episodes=None if episodes is None else torch.full_like(self._block_of_env, episodes),
            openings=openings,
            actions=actions,
        )
        # The first turn shows whether agents decide in turn.
        self._agents_in_turn = _agents_in_turn(self.turn, num_agents=len(env.agents))
        self._critics = {
            name: CriticRows(critic, agents=env.agents, populations=populations, device=device)
            for name, critic in critics.items()
            if any(player.population == name for player in learning)
        }
        self._begin(blocks, num_new=len(blocks))
        for critic_rows in self._critics.values():
            # Rows of the first turn's decisions are read before the first step, so it is shown
            # here.
            critic_rows.show(self.turn)
        self._phases = Phases(num_envs=env.num_envs, rollout_length=self._num_steps, device=device)
        if episodes is None:
            self._wait(self._phases.begin(episode_length, generator=generator))

    def go_on(
        self,
        blocks: Sequence[TrainingBlock],
        *,
        num_new: int,
        becomes: Mapping[int, int],
        generator: torch.Generator,
    ) -> None:
        """Continue the episodes in flight in another assignment of the same policies.

        An environment keeps its players until its episode ends; new episodes begin in the first
        blocks. Counts and tallies begin anew.

        Args:
            blocks: Players of each block.
            num_new: Number of blocks, from the first one on, that get new episodes.
            becomes: Index in ``blocks`` of each earlier block that `in_flight` names.
            generator: Source of all actions and openings from now on.

        Raises:
            KeyError: If a block with episodes in flight is missing in ``becomes``.
            ValueError: As for the class.
        """
        self._generator = generator
        new = equal_blocks(num_new, num_envs=self._env.num_envs, device=generator.device)
        # Blocks without episodes in flight keep 0, which no environment reads.
        goes_on = torch.zeros(self._num_blocks, dtype=torch.int64, device=generator.device)
        for before in self.in_flight():
            goes_on[before] = becomes[before]
        # All other environments are between episodes or wait to begin, so they get new players at
        # once.
        is_open = self.open.length > 0
        self._block_of_env = torch.where(is_open, goes_on[self._block_of_env], new)
        states = self.seated.recurrent_state
        self.seated = self._seat(self._env, blocks, recurrent_state=states)
        self._begin(blocks, num_new=num_new)

    def rest(self) -> None:
        """Free everything that `go_on` makes again: rollout buffers, players and their stacks."""
        self._recorders.clear()
        self.seated.leave()

    def in_flight(self) -> dict[int, int]:
        """Count the environments with an unfinished episode, by the block in which it began."""
        blocks = self._block_of_env[self.open.length > 0]
        counts = torch.bincount(blocks, minlength=self._num_blocks).tolist()
        return {block: count for block, count in enumerate(counts) if count}

    def _seat(
        self,
        env: BatchedEnv,
        blocks: Sequence[TrainingBlock],
        *,
        recurrent_state: RecurrentState | None,
    ) -> SeatedPlayers[SeatedPlayer]:
        """Give each environment the players of its block."""
        # In cooperation training has no opponent, so one play is enough.
        played = plays_of(self._seats)[0]
        return SeatedPlayers(
            [tuple(block.players[index] for index in played) for block in blocks],
            block_of_env=self._block_of_env,
            seats=[self._seats[index] for index in played],
            agents=env.agents,
            product_dtypes=self._product_dtypes,
            recurrent_state=recurrent_state,
        )

    def _begin(self, blocks: Sequence[TrainingBlock], *, num_new: int) -> None:
        """Reset all counts and recorders."""
        env, device = self._env, self._generator.device
        # All policies share one rollout length: the longest one that a policy requires.
        learning = learning_in([block.players for block in blocks], seats=self._seats)
        longest = max(player.algorithm.rollout_length for player in learning)
        self._num_steps = rollout_calls(longest, agents_in_turn=self._agents_in_turn)
        self._num_blocks, self._num_new = len(blocks), num_new
        self._next_block = equal_blocks(num_new, num_envs=env.num_envs, device=device)
        self._is_moving = not torch.equal(self._block_of_env, self._next_block)
        # Once no environment plays in the old blocks, their players need not be stacked.
        if not self._is_moving:
            self.seated.retire(from_block=num_new)
        self._book = TallyBook(
            [block.entrants for block in blocks],
            block_of_env=self._block_of_env,
            agents=env.agents,
            sides=self._sides,
            seats=self._seats,
        )
        self._recorders: list[Recorder] = [
            self._recorder(player, index=index)
            for index, player in enumerate(self.seated.players)
            if isinstance(player, Learning)
        ]
        self._measured = Measured(
            num_envs=env.num_envs,
            num_agents=len(env.agents),
            num_players=len(self.seated.players),
            device=device,
        )
        self.agent_steps: dict[PolicyId, int] = {
            recorder.learning.policy: 0 for recorder in self._recorders
        }
        """Decisions of each policy's network so far, without openings and frozen seats."""

    def _recorder(self, learning: Learning, *, index: int) -> Recorder:
        columns = torch.tensor(
            [self._env.agents.index(agent) for agent in self._populations[learning.population]],
            device=self._generator.device,
        )
        return Recorder(
            learning,
            index=index,
            buffer=RolloutBuffer(
                length=self._num_steps, agents=columns, reward_weights=learning.reward_weights
            ),
            agents=columns,
            recurrent_state=self.seated.recurrent_state,
            critic=self._critics.get(learning.population),
            generator=self._generator,
        )

    def tallies(self) -> tuple[Tally, ...]:
        """Return the tallies of matches so far; episodes with a random opening are no matches."""
        return self._book.tallies()

    def episodes(self) -> tuple[Tally, ...]:
        """Return tallies of all episodes so far, matches or not; for statistics only."""
        return self._book.episodes()

    def measured(self) -> dict[PolicyId, Measures]:
        """Return measurements of rewards and episode metrics, by policy that learns."""
        return {
            recorder.learning.policy: self._measured.of_player(
                recorder.index, table=self.seated.table
            )
            for recorder in self._recorders
        }

    def collect(
        self, should_stop: Callable[[], bool] = lambda: False
    ) -> tuple[tuple[Learning, Rollout], ...]:
        """Play one rollout, as long as the longest ``rollout_length`` of the policies that learn.

        Where many agents take turns it is longer (`arena.rollout.calls`).

        Args:
            should_stop: Called before every step; on True the rollout is thrown away.

        Returns:
            One rollout per policy that learns; none if it was stopped.

        Raises:
            EnvironmentFault: If an environment broke its contract.
        """
        # `inference_mode` is unusable, because recorded tensors go through a backward pass later.
        with torch.no_grad():
            for t in range(self._num_steps):
                if should_stop():
                    return ()
                self._t = t
                steps_before = sum(self.agent_steps.values())
                self.step()
                # Progress counts turns even without a trainee's decision.
                self._progress.advance(sum(self.agent_steps.values()) - steps_before)
            return tuple(
                (recorder.learning, recorder.finish(self.turn, seated=self.seated))
                for recorder in self._recorders
            )

    def _decided(self, actions: Mapping[str, torch.Tensor]) -> None:
        # Environments that resume now begin their episode in this step, so they still count as
        # halted.
        self._halted = self._phases.waiting
        if self._remaining is not None:
            self._halted = self._remaining <= 0
        resumed = self._phases.tick()
        if resumed is not None:
            self._env.resume(resumed)

    def _received(self, turn: Turn) -> None:
        for critic_rows in self._critics.values():
            critic_rows.show(turn)
        for recorder in self._recorders:
            # The value of a truncated agent needs its recurrent state, which is reset afterwards.
            recorder.store_result(self._t, turn, seated=self.seated)

    def _record(self, turn: Turn) -> None:
        if self._halted is not None:
            # Length 0 marks an environment without an open episode (`in_flight`).
            self.open.length[self._halted] = 0
        told = turn
        if self._success_return is not None and bool(turn.episode_over.any()):
            returns = self.open.returns
            told = with_successes(turn, returns=returns, at_least=self._success_return)
        self._measured.add(told, table=self.seated.table)

    def _end(self, turn: Turn) -> None:
        self._book.add(turn, self.open)
        self._length = float(self.open.length[turn.episode_over].double().mean())

    def _begin_next(self, turn: Turn) -> None:
        over = turn.episode_over
        if self._is_moving:
            self._move(over)
        super()._begin_next(turn)
        if self._remaining is None:
            length = self._length
            self._wait(self._phases.end(over, length=length, generator=self._generator))

    def _move(self, environments: torch.Tensor) -> None:
        """Seat the players of the new blocks where an episode begins."""
        self._measured.settle(table=self.seated.table)
        self._block_of_env = torch.where(environments, self._next_block, self._block_of_env)
        self.seated.move(self._block_of_env)
        self._book.move(self._block_of_env)
        self._is_moving = not torch.equal(self._block_of_env, self._next_block)
        if not self._is_moving:
            self.seated.retire(from_block=self._num_new)

    def _wait(self, environments: torch.Tensor | None) -> None:
        """Halt environments until the phases resume them. bool [B]; None: none."""
        if environments is not None:
            self._halt(environments)

    def _learn(
        self, population: str, group: Group, *, owner: torch.Tensor, action: torch.Tensor
    ) -> None:
        for recorder in self._recorders:
            if recorder.learning.population == population:
                self.agent_steps[recorder.learning.policy] += recorder.decide(
                    self._t, group, where=owner == recorder.index, action=action
                )


def _agents_in_turn(first: Turn, *, num_agents: int) -> int:
    """Return the number of agents who take turns, from the first turn; 1: they decide at once."""
    groups = first.groups.values()
    num_slots = max(group.agent_index.shape[1] for group in groups)
    deciding = torch.stack([(group.agent_index >= 0).sum(dim=1) for group in groups]).sum(dim=0)
    return num_agents if num_slots == 1 and int(deciding.max()) <= 1 else 1
