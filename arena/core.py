"""START HERE: the nouns of the worker's side, each once.

::

    Assignment   one piece of work that the controller gives out     arena.wire.messages
    Worker       carries out an assignment                           arena.learners.work.worker
    BatchedEnv   B environments stepped as one                       arena.envs.base
    Actor        chooses actions: bots, ghosts, exported champions   here
    Algorithm    a policy that learns                                here; arena.learning.ppo
    Rollout      the decisions that an algorithm learns from         arena.experience
    Checkpoint   weights and optimizer in files, with a manifest     arena.checkpoints
    Transport    moves messages                                      arena.wire.transport
    Sink         takes metrics                                       arena.metrics.sink

A worker loads policies from checkpoints, lets them play in a BatchedEnv against Actors, hands the
rollouts to an Algorithm, and publishes new checkpoints::

    turn = env.reset(seeds)
    while agent_steps < budget:
        rollout = collector.collect()      # T steps of B environments
        metrics = algorithm.update(rollout)
    publish(algorithm)

Shapes: N rows, F features of a flattened observation, n actions, K numbers of an action, H numbers
of a recurrent state, G numbers of a critic's input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from arena.experience import Rollout
from arena.normalization import Exchange
from arena.types import Seat


@dataclass(frozen=True, slots=True, kw_only=True)
class Games:
    """The game of each row, for an actor that tells games apart (`Actor.reads_games`).

    Attributes:
        seat: Seat that the deciding agent belongs to.
        index: Environment of each row, by its index in the batch. On the CPU. int64 [N].
        episode: Number of each row's episode, unique in this process. On the CPU. int64 [N].
    """

    # Bots get numpy arrays, so these tensors are on the CPU.
    seat: Seat
    index: torch.Tensor
    episode: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorInput:
    """The rows that an actor or an algorithm decides about. Optional parts are None unless wanted.

    Attributes:
        observation: Flattened observations. float32 or uint8 [N, F].
        action_mask: True for legal actions. bool [N, n]; None without masks.
        recurrent_state: State after the agent's last decision in its episode, zeros before its
            first. float32 [N, H]; None where ``state_size`` is 0.
        critic_input: Input of a centralized critic. float32 or uint8 [N, G]; None where
            ``critic_size`` is 0. Actions must not depend on it: it is not there in matches.
        games: Games of the rows; None unless the actor reads them.
    """

    observation: torch.Tensor
    action_mask: torch.Tensor | None = None
    recurrent_state: torch.Tensor | None = None
    critic_input: torch.Tensor | None = None
    games: Games | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorOutput:
    """The decisions of an actor.

    Attributes:
        action: int64 [N] or float32 [N, K].
        recurrent_state: State after the decisions. float32 [N, H]; None where there is none.
    """

    action: torch.Tensor
    recurrent_state: torch.Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmOutput(ActorOutput):
    """The decisions of an algorithm, with all that it learns from later.

    Attributes:
        log_prob: Log-probability of each action. float32 [N].
        value: Expected discounted return, in units of reward. float32 [N].
    """

    log_prob: torch.Tensor
    value: torch.Tensor


# `SeatedPlayers` distinguishes actors from policies that learn by an isinstance check.
@runtime_checkable
class Actor(Protocol):
    """Chooses actions: a frozen policy, a bot, an exported champion.

    It keeps no recurrent state: the caller does, for each (environment, agent). A class that
    inherits from this one needs `act` alone.
    """

    @property
    def state_size(self) -> int:
        """H; 0: the actor is not recurrent."""
        return 0

    # True is the safe default, because it costs only speed.
    @property
    def reads_agent(self) -> bool:
        """True if `act` depends on ``agent``; if not, rows of several agents come in one call."""
        return True

    @property
    def reads_games(self) -> bool:
        """True if `act` wants ``ActorInput.games``; only with ``reads_agent``."""
        return False

    def act(self, inputs: ActorInput, *, agent: str, generator: torch.Generator) -> ActorOutput:
        """Choose one action per row.

        Args:
            inputs: Rows to decide about.
            agent: Name of the deciding agent; "" where the actor does not read it.
            generator: The only source of randomness.
        """


# `make_algorithm` checks a user's class by isinstance.
@runtime_checkable
class Algorithm(Protocol):
    """A policy that learns: its network, its optimizer, and the effect of a rollout on them.

    Owned by one thread. Constructed by `arena.learning.algorithms.make_algorithm`. All that it
    keeps beside ``weights`` and ``optimizer_state`` ends with each checkpoint: ``load`` leaves the
    policy as if it had just been made and loaded. A class that inherits from this one has neither a
    recurrent state nor a centralized critic unless it says so.
    """

    @property
    def state_size(self) -> int:
        """Size H of the recurrent state; 0 if not recurrent, and ``network.core`` is refused."""
        return 0

    # In a Protocol, method bodies are defaults for classes that inherit from it.
    @property
    def critic_size(self) -> int:
        """G; 0: values are computed from observations."""
        return 0

    @property
    def bptt_length(self) -> int | None:
        """Decisions of a recurrent policy's longest sequence; None: as long as the rollout."""
        return None

    @property
    def needs_transitions(self) -> bool:
        """Return whether rollouts need ``Rollout.transitions``."""
        return False

    @property
    def rollout_length(self) -> int:
        """Calls of ``step`` in one rollout; of N > 2 agents who take turns, N / 2 times as many."""

    @property
    def gamma(self) -> float:
        """Discount per own decision."""

    @property
    def gae_lambda(self) -> float:
        """Bias (0) against variance (1) of the advantages."""

    @property
    def learner_updates(self) -> int:
        """Optimizer steps so far."""

    def act(self, inputs: ActorInput, *, generator: torch.Generator) -> AlgorithmOutput:
        """Sample one action per row while training."""

    def value(self, inputs: ActorInput) -> torch.Tensor:
        """Return the expected discounted return of each row, in units of reward. float32 [N]."""

    def update(self, rollout: Rollout, *, generator: torch.Generator) -> dict[str, float]:
        """Learn from one rollout and return flat, finite metrics of the update.

        Raises:
            NonFiniteError: After three updates in a row that had to be skipped.
        """

    def weights(self) -> dict[str, torch.Tensor]:
        """Return network and normalizers: all that playing needs. float32 CPU copies.

        These are rated, kept as a ghost and exported; they may be averages of those that learn.
        """

    def optimizer_state(self) -> dict[str, torch.Tensor]:
        """Return all else that learning needs after a restart: the optimizer's tensors and others.

        Float32 CPU copies, by stable names; no hyperparameters.
        """

    def load(
        self,
        weights: Mapping[str, torch.Tensor],
        optimizer_state: Mapping[str, torch.Tensor] | None,
        *,
        learner_updates: int,
    ) -> None:
        """Take over weights and optimizer (None: a fresh one), then apply the hyperparameters.

        Raises:
            CheckpointCorrupt: If names or shapes differ from this architecture's.
        """


@runtime_checkable
class LearnsInRanks(Protocol):
    """Algorithm that several processes can train together (`learner_cores`), each with its rows.

    What ``update`` changes is then the same in all of them, bit for bit: gradients, normalizers and
    whatever decides are averaged over the rows of all.
    """

    def join(self, exchange: Exchange | None) -> None:
        """Learn together with the other ranks from now on.

        Args:
            exchange: Way to them; ``update`` calls it as often in each rank, also in one whose
                rollout is empty. None: alone again.
        """


@runtime_checkable
class HasNormalizers(Protocol):
    """Algorithm with normalizers that can be filled without an update of the weights."""

    def update_normalizers(
        self, observation: torch.Tensor, *, critic_input: torch.Tensor | None
    ) -> None:
        """Take the inputs of decisions into the normalizers; no weight changes.

        Args:
            observation: Flattened observations. float32 or uint8 [N, F].
            critic_input: Inputs of a centralized critic. float32 or uint8 [N, G]; None where
                ``critic_size`` is 0.
        """
