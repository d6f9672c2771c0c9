"""A `BatchedGame` as a `BatchedEnv`: seeds, episodes, populations, scores, halting and checks.

Shapes: B games, A agents, S slots of a group or population, P agents of a population, F features of
a flattened observation, n actions, N episodes that end in one call.

Tests: `tests/arena/envs/batched/test_batch.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from arena.envs.base import Group, Turn
from arena.envs.batched.game import BatchedGame, StepResult
from arena.envs.batched.scoring import BatchedScore
from arena.envs.chance import check_seeds, episode_seeds
from arena.envs.pettingzoo.pending_decisions import NO_DECISION
from arena.envs.spaces.observations import (
    BOUNDED_REWARD,
    BOUNDED_SEEN,
    LARGEST_REWARD,
    LARGEST_SEEN,
    discrete_actions,
)
from arena.errors import ArenaError, ConfigError, EnvironmentFault
from arena.processes.settings import SETTINGS
from arena.users_code import is_arenas, pass_interrupt, raised

T = TypeVar("T")


class GameBatch:
    """B games stepped as one.

    Args:
        environment_id: Environment's id, for messages.
        game: Rules of the game.
        populations: Agents by population; every agent is in one.
        score: Scoring function of finished episodes.
        num_sides: Number of columns of the score.
        num_envs: B.
        device: Device of all tensors.

    Raises:
        ConfigError: If a population mixes agents with different spaces.
    """

    def __init__(
        self,
        environment_id: str,
        *,
        game: BatchedGame,
        populations: Mapping[str, tuple[str, ...]],
        score: BatchedScore,
        num_sides: int,
        num_envs: int,
        device: torch.device,
    ) -> None:
        self._id = environment_id
        self._game = game
        self._score = score
        self._device = device
        self._num_envs = num_envs
        self._turn_based = game.api == "aec"
        self._views = tuple(
            view_of(game, name=name, agents=agents, device=device)
            for name, agents in populations.items()
        )
        # Agents of a group have equal spaces, so the first one stands for all.
        self._num_actions = tuple(
            len(discrete_actions(game.agent_specs[g[0]].action)) for g in game.groups
        )
        num_agents = len(game.agents)
        self._seeds = torch.zeros(num_envs, dtype=torch.int64, device=device)
        self._episodes = torch.zeros(num_envs, dtype=torch.int64, device=device)
        # Returns are float64, because they are sums of float32 rewards and decide matches.
        self._returns = torch.zeros(num_envs, num_agents, dtype=torch.float64, device=device)
        self._alive = torch.zeros(num_envs, num_agents, dtype=torch.bool, device=device)
        self._halted = torch.zeros(num_envs, dtype=torch.bool, device=device)
        self._any_halted = False
        self._resumed: torch.Tensor | None = None
        # These constants are shared between turns, so no code may write into them.
        self._never = torch.zeros(num_envs, num_agents, dtype=torch.bool, device=device)
        # The dtype is explicit, because users' code in this process may have changed the default.
        self._no_score = torch.full(
            (num_envs, num_sides), torch.nan, dtype=torch.float32, device=device
        )
        self._asked: Sequence[Group] = ()
        # Arena's own games change no process settings.
        self._is_arenas = is_arenas(game)

    @property
    def num_envs(self) -> int:
        """Number B of games."""
        return self._num_envs

    @property
    def agents(self) -> tuple[str, ...]:
        """The A agents in the order of ``reward``'s columns."""
        return self._game.agents

    @torch.no_grad()
    def reset(self, seeds: Sequence[int]) -> Turn:
        """Start all games: (seeds[b], k) alone seeds episode k of game b.

        Raises:
            ValueError: If there is not one seed in [0, 2**63) per game.
            EnvironmentFault: If the game breaks its contract.
        """
        check_seeds(seeds, num_envs=self._num_envs)
        self._seeds = torch.tensor(list(seeds), dtype=torch.int64, device=self._device)
        self._episodes.zero_()
        # Returns and liveness belong to an episode; the count of episodes belongs to the seeds.
        self._returns.zero_()
        self._alive.fill_(True)
        self._halted.zero_()
        self._any_halted = False
        self._resumed = None
        self._call(self._restart, doing="reset")
        self._check_shapes()
        nothing = StepResult(reward=self._never.float(), terminated=self._never)
        self._check_sanity(nothing)
        return self._turn(nothing, over=self._halted, score=self._no_score, still=None)

    @torch.no_grad()
    def step(self, actions: Mapping[str, torch.Tensor]) -> Turn:
        """Carry out the pending decisions.

        Raises:
            ValueError: If an action is not legal.
            EnvironmentFault: If the game breaks its contract.
        """
        if not self._asked:
            raise RuntimeError("step needs a reset first")
        # Actions are checked before the game sees them, because an illegal one is the caller's
        # fault.
        chosen = self._chosen(actions)
        episode = self._episodes
        result, over, score, still = self._call(lambda: self._advance(chosen), doing="step")
        self._check_sanity(result)
        turn = self._turn(result, over=over, score=score, still=still)
        turn.episode = episode
        return turn

    def halt(self, environments: torch.Tensor) -> None:
        """Halt games until they are resumed; they have no pending decisions meanwhile.

        Args:
            environments: Games to halt. bool [B].
        """
        self._halted = self._halted | environments.to(self._device)
        self._any_halted = bool(self._halted.any())

    def resume(self, environments: torch.Tensor) -> None:
        """Let halted games begin an episode in the next call of ``step``.

        Args:
            environments: Games to resume. bool [B].
        """
        resumed = environments.to(self._device)
        self._resumed = resumed if self._resumed is None else self._resumed | resumed

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def _call(self, call: Callable[[], T], *, doing: str) -> T:
        """Call the game, and report an exception as the game's fault."""
        try:
            return call() if self._is_arenas else SETTINGS.run(call)
        # Arena's own errors pass: a faulty outcome function, for instance, is no fault of the
        # game.
        except ArenaError:
            raise
        except BaseException as error:
            pass_interrupt(error)
            what = f"environment {self._id} in {doing}"
            raise EnvironmentFault(raised(what, error)) from error

    def _restart(self) -> None:
        """Begin the first episodes."""
        # All games begin here, because none is halted at this point.
        self._begin(~self._halted, torch.arange(self._num_envs, device=self._device))
        self._asked = self._game.decisions()

    def _advance(
        self, chosen: Sequence[torch.Tensor]
    ) -> tuple[StepResult, torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Step all games, and begin new episodes.

        Returns:
            The game's result; the games that are over, bool [B]; the scores, float32 [B, sides];
            and the halted games, bool [B], if there are any.
        """
        result = self._game.step(chosen)
        ended = self._end(result)
        score = self._no_score
        # Most steps end no episode, and `nonzero` has synchronized already.
        over = ended.nonzero().squeeze(1)
        if len(over):
            # `index_copy` makes a copy, because the constant must not change.
            score = score.index_copy(0, over, self._score(self._returns[over]))
            # A halted game plays on unobserved, and its episode begins again with the same seed.
            # The tensor is not changed in place, because the turn refers to the old numbers.
            self._episodes = self._episodes + (ended & ~self._halted)
            self._returns[over] = 0.0
            self._alive[over] = True
            # Episodes are counted before games begin, because the count is part of their keys.
            self._begin(ended, over)
        # The halted games are read before resumed ones begin, because the last results of these
        # also fall into the halt.
        still = self._halted if self._any_halted else None
        self._begin_resumed()
        self._asked = self._game.decisions()
        return result, ended, score, still

    def _begin(self, games: torch.Tensor, index: torch.Tensor) -> None:
        """Start new episodes in the ``games`` (bool [B]) at ``index``."""
        keys = episode_seeds(self._seeds[index], episodes=self._episodes[index])
        # Keys of other games are 0 and unused.
        self._game.reset(games, key=torch.zeros_like(self._seeds).index_copy_(0, index, keys))

    def _begin_resumed(self) -> None:
        """Start the episodes of resumed games; their play during the halt is discarded."""
        if self._resumed is None:
            return
        # Play during the halt has changed returns and ends, so they are reset.
        index = self._resumed.nonzero().squeeze(1)
        self._returns[index] = 0.0
        self._alive[index] = True
        self._begin(self._resumed, index)
        self._halted = self._halted & ~self._resumed
        self._any_halted = bool(self._halted.any())
        self._resumed = None

    def _end(self, result: StepResult) -> torch.Tensor:
        """Count the results of a step; return the games that are over. bool [B]."""
        ended = result.terminated
        if result.truncated is not None:
            ended = ended | result.truncated
        # Rewards of an agent after its end count for its return, as in PettingZoo.
        self._returns += result.reward
        self._alive &= ~ended
        return ~self._alive.any(dim=1)

    def _turn(
        self,
        result: StepResult,
        *,
        over: torch.Tensor,
        score: torch.Tensor,
        still: torch.Tensor | None,
    ) -> Turn:
        """Assemble the turn; in games that are halted (``still``, bool [B]) nothing happened."""
        reward, terminated = result.reward, result.terminated
        # Both flags together mean a termination: a terminal state has no value to bootstrap from.
        truncated = self._never if result.truncated is None else result.truncated & ~terminated
        if still is not None:
            agents = still[:, None]
            reward, terminated = reward.masked_fill(agents, 0.0), terminated & ~agents
            truncated, over = truncated & ~agents, over & ~still
            score = score.masked_fill(agents, torch.nan)
        return Turn(
            groups={view.name: self._seen(view) for view in self._views},
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            final_observation={view.name: self._last_seen(view, result) for view in self._views},
            episode_over=over,
            score=score,
        )

    def _seen(self, view: View) -> Group:
        asked = self._asked[view.group]
        index, observation, mask = asked.agent_index, asked.observation, asked.action_mask
        if view.columns is not None:
            if self._turn_based:
                # Where agents take turns, a population sees the group's decision or none; it has
                # no columns of its own.
                index = index.masked_fill(~view.members[index], NO_DECISION)
            else:
                index, observation = index[:, view.columns], observation[:, view.columns]
                mask = None if mask is None else mask[:, view.columns]
        if self._any_halted:
            index = index.masked_fill(self._halted[:, None], NO_DECISION)
        return Group(index, observation, mask)

    def _last_seen(self, view: View, result: StepResult) -> torch.Tensor:
        if result.final_observation:
            last = result.final_observation[view.group]
            return last if view.columns is None else last[:, view.columns]
        group = self._game.groups[view.group]
        num_agents = len(group) if view.columns is None else len(view.columns)
        features = self._asked[view.group].observation.shape[2]
        # No agent was truncated, so all rows are undefined, and an expanded view saves the memory.
        return self._no_score.new_zeros(1, 1, 1).expand(self._num_envs, num_agents, features)

    def _chosen(self, actions: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
        """Return the checked actions by group; a legal one for halted games."""
        chosen = [torch.zeros_like(group.agent_index) for group in self._asked]
        for view in self._views:
            action, index = actions[view.name], self._asked[view.group].agent_index
            if view.columns is not None and not self._turn_based:
                index = index[:, view.columns]
            if action.shape != index.shape or action.dtype != torch.int64:
                raise ValueError(
                    f"actions of {view.name} must be int64 {tuple(index.shape)}, "
                    f"got {action.dtype} {tuple(action.shape)}"
                )
            if view.columns is None:
                chosen[view.group] = action
            elif self._turn_based:
                # Index -1 reads the last entry, which is False.
                mine = view.members[index]
                chosen[view.group] = torch.where(mine, action, chosen[view.group])
            else:
                # Several populations may share a group, so each one fills its own columns.
                chosen[view.group][:, view.columns] = action
        return [
            self._legal(group, action, number=number)
            for group, action, number in zip(self._asked, chosen, self._num_actions, strict=True)
        ]

    def _legal(self, group: Group, action: torch.Tensor, *, number: int) -> torch.Tensor:
        mask = group.action_mask
        asked = group.agent_index >= 0
        if self._any_halted:
            unasked = ~asked | self._halted[:, None]
            # A halted game is stepped with the others, so it gets a legal action; its results are
            # ignored.
            first = torch.zeros_like(action) if mask is None else mask.int().argmax(dim=2)
            action = torch.where(unasked, first, action)
        legal = (action >= 0) & (action < number)
        if mask is not None:
            # Nonexistent choices cannot index the mask, so they are clamped; the &= keeps them
            # illegal.
            legal &= mask.gather(2, action.clamp(0, number - 1).unsqueeze(2)).squeeze(2)
        illegal = asked & ~legal
        if bool(illegal.any()):
            b, s = illegal.nonzero()[0].tolist()
            raise ValueError(
                f"actions of {self.agents[int(group.agent_index[b, s])]} must be legal and in "
                f"[0, {number}), got {int(action[b, s])} in environment {b}"
            )
        # `BatchedGame.step` promises the game zeros where no decision is pending.
        return action.masked_fill(~asked, 0)

    def _check_shapes(self) -> None:
        """Check everything that a step must not change, once per reset."""
        groups = zip(self._game.groups, self._asked, self._num_actions, strict=True)
        for agents, group, number in groups:
            index, observation, mask = group.agent_index, group.observation, group.action_mask
            # Where agents take turns, all agents of a group share one slot.
            expected = (self._num_envs, 1 if self._turn_based else len(agents))
            if tuple(index.shape) != expected or index.dtype != torch.int64:
                self._fault(f"agent_index must be int64 {expected}", index)
            if tuple(observation.shape[:2]) != expected or observation.ndim != 3:
                self._fault(f"observation must be [B, S, F] with B, S {expected}", observation)
            if observation.dtype != torch.float32:
                self._fault("observation must be float32", observation)
            if mask is not None and (
                tuple(mask.shape) != (*expected, number) or mask.dtype != torch.bool
            ):
                self._fault(f"action_mask must be bool {(*expected, number)}", mask)

    def _fault(self, rule: str, found: torch.Tensor) -> None:
        raise EnvironmentFault(
            f"environment {self._id}: {rule}, got {found.dtype} {tuple(found.shape)}"
        )

    def _check_sanity(self, result: StepResult) -> None:
        """Check for finite numbers, and for a legal action at each decision."""
        # NaN, infinities and too large numbers all show in a norm. Integers have no norm, hence
        # `float`.
        total = result.reward.float().norm()
        empty = self._never[0, 0]
        for group in self._asked:
            total = total + group.observation.norm()
            if group.action_mask is not None:
                empty = empty | ((group.agent_index >= 0) & ~group.action_mask.any(dim=2)).any()
        if float(total) <= LARGEST_SEEN and not bool(empty):
            return
        # A single norm is a cheap test. Only if it fails, each number is checked, because a norm
        # of many numbers may exceed the limit although no number does.
        if not bool((result.reward.abs() <= LARGEST_REWARD).all()):
            raise EnvironmentFault(f"environment {self._id}: a reward must be {BOUNDED_REWARD}")
        for group in self._asked:
            asked, mask = group.agent_index >= 0, group.action_mask
            if not bool((group.observation[asked].abs() <= LARGEST_SEEN).all()):
                raise EnvironmentFault(
                    f"environment {self._id}: an observation must be {BOUNDED_SEEN}"
                )
            if mask is not None and not bool(mask[asked].any(dim=1).all()):
                raise EnvironmentFault(f"environment {self._id}: an action mask is empty")


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Population's view of the group of agents that it is part of.

    Attributes:
        name: Population's name.
        group: Index of its group.
        columns: Positions of its agents in the group; None if it is the whole group, in its order.
        members: Whether an agent is in the population; the last entry, for index -1, is False. bool
            [A + 1].
    """

    name: str
    group: int
    columns: torch.Tensor | None
    members: torch.Tensor


def view_of(game: BatchedGame, *, name: str, agents: tuple[str, ...], device: torch.device) -> View:
    """Return the view of a population.

    Raises:
        ConfigError: If its agents have different spaces.
    """
    groups = [at for at, group in enumerate(game.groups) if agents[0] in group]
    if not groups or not set(agents) <= set(game.groups[groups[0]]):
        raise ConfigError(
            f"populations.{name}.agents must have equal spaces, and these have not: "
            f"{', '.join(agents)}"
        )
    group = game.groups[groups[0]]
    members = torch.zeros(len(game.agents) + 1, dtype=torch.bool, device=device)
    members[[game.agents.index(agent) for agent in agents]] = True
    columns = torch.tensor([group.index(agent) for agent in agents], device=device)
    return View(
        name=name,
        group=groups[0],
        # A population that equals the group needs no columns: its tensors pass without a copy.
        columns=None if agents == group else columns,
        members=members,
    )
