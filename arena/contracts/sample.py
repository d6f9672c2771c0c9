"""A game for suites of things that play: its facts, and decisions that random play leads to.

Shapes: B environments, N rows, F features of a flattened observation, n actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

import torch

from arena.contracts.contract import Subject
from arena.core import ActorInput
from arena.environment_spec import AgentSpec, EnvironmentRequest
from arena.envs.describe import environment_facts
from arena.envs.make import PlainEnvs
from arena.envs.random_play import random_turns
from arena.spaces import ObservationLayout

SEED = 7
MAX_CALLS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleGame(PlainEnvs):
    """An environment that something plays."""

    def population_of(self, agent: str | None) -> str:
        """Return the population of an agent; of the first one for None."""
        return next(name for name, agents in self.populations.items() if agent in (None, *agents))

    def facts(self, population: str) -> AgentSpec:
        """Return the spaces of a population's agents."""
        return self.spec.agent_specs[self.populations[population][0]]

    def observation(self, population: str) -> ObservationLayout:
        """Return the layout of a population's observations."""
        return ObservationLayout.from_json(self.facts(population).observation)

    def rows(self, population: str, *, number: int) -> ActorInput:
        """Return decisions of random play, in the order of play."""
        seen: list[torch.Tensor] = []
        masks: list[torch.Tensor] = []
        num_rows = 0
        generator = torch.Generator().manual_seed(SEED)
        with closing(self.make(num_envs=8)) as env:
            turns = random_turns(env, seeds=range(8), actions=self.actions, generator=generator)
            for turn, _ in islice(turns, MAX_CALLS):
                group = turn.groups[population]
                asked = group.agent_index >= 0
                seen.append(group.observation[asked].clone())
                num_rows += len(seen[-1])
                if group.action_mask is not None:
                    masks.append(group.action_mask[asked].clone())
                if num_rows >= number:
                    break
        mask = torch.cat(masks)[:number] if masks else None
        return ActorInput(observation=torch.cat(seen)[:number], action_mask=mask)


def sample_game(
    subject: Subject,
    environment: str,
    *,
    kwargs: Mapping[str, object] | None,
    launch_directory: str,
) -> SampleGame:
    """Return the environment of an id.

    Raises:
        ContractBroken: If there is no such environment.
    """
    with subject.obeying(f"the environment {environment} must be there"):
        spec = environment_facts(
            EnvironmentRequest(
                environment, kwargs=dict(kwargs or {}), launch_directory=launch_directory or "."
            )
        )
    return SampleGame(spec=spec, launch_directory=launch_directory or ".")


def are_equal(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> bool:
    """Return whether both have the same tensors by name."""
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)
