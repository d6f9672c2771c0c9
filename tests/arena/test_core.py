from __future__ import annotations

import torch

from arena.core import Actor, ActorInput, ActorOutput, Algorithm
from arena.learning.ppo import Ppo
from tests.arena.samples import Inert


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


def test_an_algorithm_has_no_state_and_no_critic_unless_it_says_so() -> None:
    plain: Algorithm = Inert()
    assert (plain.state_size, plain.critic_size, plain.bptt_length) == (0, 0, None)
    assert not plain.needs_transitions
    plain.load({}, None, learner_updates=3)
    assert plain.learner_updates == 3


def test_ppo_has_every_part_of_an_algorithm() -> None:
    names = [name for name in vars(Algorithm) if not name.startswith("_")]
    assert {"act", "value", "update", "weights", "load", "bptt_length"} <= set(names)
    assert all(hasattr(Ppo, name) for name in names)
