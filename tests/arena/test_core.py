from __future__ import annotations

from collections.abc import Mapping

import torch

from arena.core import Actor, ActorInput, ActorOutput, Algorithm, AlgorithmOutput
from arena.experience import Rollout
from arena.learning.ppo import Ppo


class First(Actor):
    """An actor as short as it can be."""

    def act(self, inputs: ActorInput, *, agent: str, generator: torch.Generator) -> ActorOutput:
        return ActorOutput(action=torch.zeros(len(inputs.observation), dtype=torch.int64))


def test_an_actor_needs_act_alone() -> None:
    actor: Actor = First()
    assert (actor.state_size, actor.reads_agent, actor.reads_games) == (0, True, False)


def test_optional_inputs_are_none() -> None:
    inputs = ActorInput(observation=torch.zeros(2, 3))
    assert inputs.action_mask is inputs.recurrent_state is inputs.critic_input is None
    assert inputs.games is None
    assert First().act(inputs, agent="", generator=torch.Generator()).recurrent_state is None


class Plain(Algorithm):
    """An algorithm as short as it can be."""

    rollout_length = 1
    gamma = gae_lambda = 1.0
    learner_updates = 0

    def act(self, inputs: ActorInput, *, generator: torch.Generator) -> AlgorithmOutput:
        zeros = torch.zeros(len(inputs.observation))
        return AlgorithmOutput(action=zeros.long(), log_prob=zeros, value=zeros)

    def value(self, inputs: ActorInput) -> torch.Tensor:
        return torch.zeros(len(inputs.observation))

    def update(self, rollout: Rollout, *, generator: torch.Generator) -> dict[str, float]:
        return {}

    def weights(self) -> dict[str, torch.Tensor]:
        return {}

    def optimizer_state(self) -> dict[str, torch.Tensor]:
        return {}

    def load(
        self,
        weights: Mapping[str, torch.Tensor],
        optimizer_state: Mapping[str, torch.Tensor] | None,
        *,
        learner_updates: int,
    ) -> None:
        self.learner_updates = learner_updates


def test_an_algorithm_has_no_state_and_no_critic_unless_it_says_so() -> None:
    plain = Plain()
    assert (plain.state_size, plain.critic_size, plain.bptt_length) == (0, 0, None)
    assert not plain.needs_transitions
    plain.load({}, None, learner_updates=3)
    assert plain.learner_updates == 3


def test_ppo_has_every_part_of_an_algorithm() -> None:
    names = [name for name in vars(Algorithm) if not name.startswith("_")]
    assert {"act", "value", "update", "weights", "load", "bptt_length"} <= set(names)
    assert all(hasattr(Ppo, name) for name in names)
