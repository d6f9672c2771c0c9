"""The players of an assignment: loaded from checkpoints, checked, and kept for the next one.

Kept players are a cache: an assignment's result is the same without it. They are a part of the
`Equipment` with which a worker carries out every assignment.

Tests: `tests/arena/learners/work/test_worker.py`,
`tests/arena/learners/work/test_worker_faults.py`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import torch

from arena.checkpoints.manifest import Manifest, PolicyRecord, check_manifest
from arena.checkpoints.tensors import load_checkpoint, load_weights, publish_policy
from arena.config import LearnerSetup
from arena.core import Actor, Algorithm
from arena.envs.random_play import action_layouts
from arena.envs.spaces.agent_id_wrapper import observation_layouts
from arena.envs.spaces.critic_input import CriticInput, critic_input
from arena.errors import ConfigError
from arena.learners.ranks.crew import Ranks
from arena.learners.work.environments import Environments, Team
from arena.learners.work.faults import naming_checkpoint, naming_policy
from arena.learning.acting import product_dtype
from arena.learning.algorithms import make_algorithm
from arena.matches.actors import BotActor, make_bot
from arena.matches.play import Progress
from arena.networks.frozen import FrozenPolicy
from arena.processes.settings import KeptSettings
from arena.resolve import put_first_on_path
from arena.types import RANDOM_BOT, CheckpointRef, Entrant, Player, PolicyId, is_bot, population_of
from arena.wire.messages import Published, Trainee

MAX_FROZEN = 64
MAX_LIVE = 32

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class RecentlyUsed(Generic[KeyT, ValueT]):
    """A bounded cache that drops the least recently used value.

    Args:
        capacity: Number of values that it keeps.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._values: OrderedDict[KeyT, ValueT] = OrderedDict()

    def get(self, key: KeyT) -> ValueT | None:
        """Return the value, now the most recently used one; None if it is not kept."""
        if key in self._values:
            self._values.move_to_end(key)
        return self._values.get(key)

    def take(self, key: KeyT) -> ValueT | None:
        """Return the value and remove it from the cache."""
        return self._values.pop(key, None)

    def put(self, key: KeyT, value: ValueT) -> None:
        """Keep a value."""
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._capacity:
            self._values.popitem(last=False)


_Live = tuple[Mapping[str, object], Algorithm]
"""Hyperparameters of an algorithm, and the algorithm in the very state that loading its checkpoint
would give.
"""


class Players:
    """The players of assignments of one run. Owned by one thread.

    Args:
        setup: Setup of the learner.
        device: Device of the networks.
    """

    def __init__(self, setup: LearnerSetup, *, device: torch.device) -> None:
        # A network may be users' code, which is found in the launch directory.
        put_first_on_path(setup.launch_directory)
        self._setup = setup
        self._root = Path(setup.root)
        self._device = device
        self._environment_digest = setup.spec.digest
        self._facts = {
            name: setup.spec.agent_specs[population.agents[0]]
            for name, population in setup.populations.items()
        }
        self._layouts = observation_layouts(setup)
        self.product_dtypes = {
            name: product_dtype(
                setup.precision,
                network=population.network,
                device=device,
                observation=self._layouts[name],
            )
            for name, population in setup.populations.items()
        }
        """Dtype, by population, in which frozen policies act together while others train."""
        self.critics = _critics(setup)
        """Inputs of centralized critics, by population that has one."""
        continuous = setup.environment.continuous_actions
        self.actions = action_layouts(
            setup.spec, populations=setup.agents_of, continuous=continuous
        )
        """Layouts of the actions by population."""
        self._frozen: RecentlyUsed[tuple[str, Entrant, Team | None, bool], Actor] = RecentlyUsed(
            MAX_FROZEN
        )
        self._live: RecentlyUsed[tuple[str, str], _Live] = RecentlyUsed(MAX_LIVE)

    def frozen(
        self, player: Player, *, population: str, team: Team = (), greedy: bool = False
    ) -> Actor:
        """Return the actor of a player that does not learn.

        Args:
            player: Ghost, policy at a checkpoint, or bot.
            population: Population of the agents that it plays.
            team: Policies that train against it; empty: it plays matches.
            greedy: Whether a policy plays its likeliest actions instead of sampling.

        Raises:
            AssignmentFault: If its weights are missing, corrupt or another population's.
            ConfigError: If it is a bot that cannot be made.
            ValueError: If it is no bot and names no weights.
        """
        entrant = player.entrant
        # Actors stored with the owner None serve all teams.
        for owner in (None, team):
            known = self._frozen.get((population, entrant, owner, greedy))
            if known is not None:
                return known
        actor = self._make_frozen(player, population=population, greedy=greedy)
        # Episodes of several teams are in flight, in environments with the same numbers. A bot
        # that keeps games by environment number would mix them up, so each team has its own bot.
        is_own = isinstance(actor, BotActor) and actor.keeps_games
        self._frozen.put((population, entrant, team if is_own else None, greedy), actor)
        return actor

    def _make_frozen(self, player: Player, *, population: str, greedy: bool) -> Actor:
        if is_bot(player.player):
            # A name in a message is looked up in the setup, never imported.
            if player.player not in (RANDOM_BOT, *self._setup.bots):
                raise ConfigError(
                    f"{player.player} must be a bot that this learner's run.yaml names "
                    f"({', '.join(self._setup.bots) or 'none'}): copy the run's run.yaml again"
                )
            return make_bot(
                player.player,
                facts=self._facts[population],
                actions=self.actions[population],
                launch_directory=self._setup.launch_directory,
            )
        if player.weights is None:
            raise ValueError(f"{player.player} names no weights and is no trainee of this")
        with naming_checkpoint(player.weights.key):
            manifest, weights = load_weights(self._root, player.weights)
            self._check(manifest, population=population)
            return FrozenPolicy.from_weights(
                self._setup.populations[population].network,
                weights,
                observation=self._layouts[population],
                action=self.actions[population],
                device=self._device,
                key=player.weights.key,
                greedy=greedy,
            )

    def algorithm(self, trainee: Trainee, *, seed: int) -> Algorithm:
        """Return the algorithm of a training policy: load its checkpoint, then set hyperparameters.

        Args:
            trainee: Policy with its checkpoint.
            seed: Seed of its first weights if it has neither checkpoint nor initial weights.

        Raises:
            AssignmentFault: If its checkpoint is missing, corrupt or another population's.
        """
        live = None
        if trainee.checkpoint is not None:
            # The algorithm leaves the cache, because training changes it in place.
            live = self._live.take((trainee.policy, trainee.checkpoint.digest))
        if live is not None:
            hyperparameters, algorithm = live
            # A donor's checkpoint has the donor's update count, while the policy keeps its own.
            is_own = algorithm.learner_updates == trainee.learner_updates
            if is_own and hyperparameters == trainee.hyperparameters:
                return algorithm
        population = population_of(trainee.policy)
        algorithm = self._make_algorithm(trainee, population=population, seed=seed)
        if trainee.checkpoint is not None:
            with naming_checkpoint(trainee.checkpoint.key, policy=trainee.policy):
                manifest, weights, optimizer = load_checkpoint(self._root, trainee.checkpoint)
                self._check(manifest, population=population)
                algorithm.load(weights, optimizer, learner_updates=trainee.learner_updates)
        elif trainee.initial_weights is not None:
            with naming_checkpoint(trainee.initial_weights.key, policy=trainee.policy):
                manifest, weights = load_weights(self._root, trainee.initial_weights)
                self._check(manifest, population=population)
                algorithm.load(weights, None, learner_updates=trainee.learner_updates)
        elif trainee.learner_updates:
            # Fresh weights replace trained ones here, and the policy's counters never decrease.
            weights = algorithm.weights()
            algorithm.load(weights, None, learner_updates=trainee.learner_updates)
        return algorithm

    def _make_algorithm(self, trainee: Trainee, *, population: str, seed: int) -> Algorithm:
        critic = self.critics.get(population)
        return make_algorithm(
            self._setup.populations[population],
            observation=self._layouts[population],
            action=self.actions[population],
            hyperparameters=trainee.hyperparameters,
            device=self._device,
            precision=self._setup.precision,
            seed=seed,
            launch_directory=self._setup.launch_directory,
            critic_input=None if critic is None else critic.layout,
        )

    def publish(self, trainee: Trainee, algorithm: Algorithm, *, agent_steps: int) -> Published:
        """Publish a policy's new checkpoint and keep the algorithm as that checkpoint has it.

        Args:
            trainee: Policy as in the assignment.
            algorithm: Live state of the policy.
            agent_steps: Decisions that it trained on in this assignment.

        Raises:
            AssignmentFault: If a weight is not finite.
            CheckpointError: If the disk refuses.
        """
        population = self._setup.populations[population_of(trainee.policy)]
        weights, optimizer = algorithm.weights(), algorithm.optimizer_state()
        # Weights are checked again when they are serialized, and may raise there.
        with naming_policy(trainee.policy):
            record = PolicyRecord(
                policy=trainee.policy,
                generation=trainee.generation,
                # This is the policy's own count, because a donor's weights come without the
                # donor's count.
                agent_steps=trainee.agent_steps + agent_steps,
                learner_updates=algorithm.learner_updates,
                hyperparameters=dict(trainee.hyperparameters),
                parent=None if trainee.checkpoint is None else trainee.checkpoint.digest,
                donor=trainee.donor,
                environment_digest=self._environment_digest,
                population_agents=population.agents,
                network=population.network,
            )
            reference = publish_policy(
                self._root, record, weights=weights, optimizer_state=optimizer
            )
        # State that the checkpoint lacks is reset, because another learner would not have it.
        algorithm.load(weights, optimizer, learner_updates=algorithm.learner_updates)
        self._keep(trainee, reference, algorithm)
        return Published(policy=trainee.policy, checkpoint=reference)

    def _keep(self, trainee: Trainee, reference: CheckpointRef, algorithm: Algorithm) -> None:
        live = dict(trainee.hyperparameters), algorithm
        self._live.put((trainee.policy, reference.digest), live)

    def _check(self, manifest: Manifest, *, population: str) -> None:
        check_manifest(
            manifest,
            environment_digest=self._environment_digest,
            setup=self._setup.populations[population],
        )


def _critics(setup: LearnerSetup) -> dict[str, CriticInput]:
    agents = setup.agents_of
    found = {
        name: critic_input(
            population.network,
            population=name,
            populations=agents,
            sides=setup.sides,
            spec=setup.spec,
        )
        for name, population in setup.populations.items()
    }
    return {name: critic for name, critic in found.items() if critic is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Equipment:
    """The objects with which a worker carries out every assignment. Owned by its thread.

    Attributes:
        setup: Setup of the learner.
        environments: Environments, made when they are first needed.
        players: Loaded players and algorithms.
        device: Device of networks and environments.
        progress: Counter of steps for heartbeats.
        should_stop: Function that returns whether the learner is to stop.
        settings: Process settings that users' code may have changed, to be restored.
        take_losses: Function that returns the policies whose episodes were dropped since the last
            call, and metrics of all episodes that were lost.
        ranks: Processes that carry out training assignments together; None: only this process.
    """

    setup: LearnerSetup
    environments: Environments
    players: Players
    device: torch.device
    progress: Progress
    should_stop: Callable[[], bool]
    settings: KeptSettings
    take_losses: Callable[[], tuple[tuple[PolicyId, ...], dict[str, float]]]
    ranks: Ranks | None = None
