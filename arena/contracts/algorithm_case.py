"""Policies and rollouts for the suite of `arena.core.Algorithm`.

Shapes: N rows, H numbers of a recurrent state, G of a critic's input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from arena.config import PopulationSetup
from arena.contracts.contract import Subject
from arena.contracts.sample import Rows, SampleGame
from arena.core import ActorInput, Algorithm, AlgorithmOutput
from arena.envs.spaces.observations import ObservationLayout
from arena.experience import Rollout, Sequences, Transitions
from arena.learning.algorithms import make_algorithm

CPU = torch.device("cpu")
LENGTH = 2
"""Decisions of an episode of the rollouts; the rows of the second follow those of all first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Everything that a suite makes algorithms and rollouts of."""

    subject: Subject
    setup: PopulationSetup
    game: SampleGame
    population: str
    hyperparameters: Mapping[str, float]
    rows: Rows
    launch_directory: str

    @property
    def critic(self) -> ObservationLayout | None:
        """Layout of a centralized critic's input, pairs of observations; None: it has no such."""
        if self.setup.network.critic == "own":
            return None
        seen = self.game.facts(self.population).observation
        return ObservationLayout.from_json({"kind": "Tuple", "spaces": [seen, seen]})

    def make(self, *, seed: int) -> Algorithm:
        """Make one policy."""
        with self.subject.obeying("it must be made as arena.learning.algorithms.AlgorithmClass"):
            return make_algorithm(
                self.setup,
                observation=self.game.observation(self.population),
                action=self.game.actions[self.population],
                hyperparameters=self.hyperparameters,
                device=CPU,
                precision="float32",
                seed=seed,
                launch_directory=self.launch_directory,
                critic_input=self.critic,
            )

    def inputs(self, algorithm: Algorithm, rows: slice = slice(None)) -> ActorInput:
        """Return decisions to be made."""
        everything, mask = self.rows.observation, self.rows.action_mask
        observation = everything[rows].clone()
        state = torch.zeros(len(observation), algorithm.state_size)
        return ActorInput(
            observation=observation,
            action_mask=None if mask is None else mask[rows].clone(),
            recurrent_state=state if algorithm.state_size else None,
            # Each row's observation and that of the row before.
            critic_input=None
            if self.critic is None
            else torch.cat((everything, everything.roll(1, dims=0)), dim=1)[rows],
        )

    def act(self, algorithm: Algorithm, *, seed: int) -> AlgorithmOutput:
        """Let an algorithm decide about all rows."""
        generator = torch.Generator().manual_seed(seed)
        with (
            self.subject.drawing("act must draw from generator alone"),
            self.subject.obeying("act must take ActorInput and a generator"),
        ):
            return algorithm.act(self.inputs(algorithm), generator=generator)

    def update(self, algorithm: Algorithm, *, seed: int) -> Mapping[str, float]:
        """Let it learn from a rollout of its own."""
        rollout = self._rollout(algorithm, seed=seed)
        generator = torch.Generator().manual_seed(seed)
        with (
            self.subject.drawing("update must draw from generator alone"),
            self.subject.obeying("update must learn from a Rollout"),
        ):
            return algorithm.update(rollout, generator=generator)

    def _rollout(self, algorithm: Algorithm, *, seed: int) -> Rollout:
        """Return episodes of two decisions, with random rewards."""
        output = self.act(algorithm, seed=seed)
        number = len(self.rows)
        generator = torch.Generator().manual_seed(seed + 1)
        reward = torch.randn(number, generator=generator)
        advantage = torch.randn(number, generator=generator)
        index, half = torch.arange(number), number // LENGTH
        inputs = self.inputs(algorithm)
        value = output.value.detach().clone()
        return Rollout(
            observation=inputs.observation,
            action_mask=inputs.action_mask,
            critic_input=inputs.critic_input,
            action=output.action.clone(),
            log_prob=output.log_prob.detach().clone(),
            value=value,
            advantage=advantage,
            return_=value + advantage,
            agent_steps=number,
            num_decisions=number,
            transitions=Transitions(
                reward=reward,
                successor=torch.where(index < half, index + half, -1),
                next_value=torch.where(index < half, value[(index + half) % number], 0.0),
            ),
            sequences=Sequences(
                rows=torch.stack((index[:half], index[:half] + half), dim=1),
                state=torch.zeros(half, algorithm.state_size),
            )
            if algorithm.state_size
            else None,
        )
