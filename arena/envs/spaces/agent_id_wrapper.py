"""One-hot agent ids beside observations, which tell a network the deciding agent.

Policies shared by agents with different tasks need them where observations look alike: Gupta,
Egorov and Kochenderfer, "Cooperative multi-agent control using deep reinforcement learning" (2017).
Shapes: B environments, A agents, S decisions at once, P agents of a population, F numbers of a
flattened observation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from arena.config import LearnerSetup, NetworkConfig
from arena.environment_spec import AgentSpec
from arena.envs.base import BatchedEnv, Turn, TurnWrapper
from arena.spaces import ObservationLayout, with_agent_id


def observation_layout(
    facts: AgentSpec, *, agents: Sequence[str], network: NetworkConfig
) -> ObservationLayout:
    """Return the layout of the rows that a population's network gets.

    Args:
        facts: Spec of any of the population's agents.
        agents: Agents of the population.
        network: Configuration whose ``agent_id`` says whether rows end with an agent id.
    """
    layout = ObservationLayout.from_json(facts.observation)
    if not network.agent_id:
        return layout
    return with_agent_id(layout, num_agents=len(agents))


def observation_layouts(setup: LearnerSetup) -> dict[str, ObservationLayout]:
    """Return the layout of the rows that each population's network gets."""
    return {
        # Agents of a population have equal spaces.
        name: observation_layout(
            setup.spec.agent_specs[population.agents[0]],
            agents=population.agents,
            network=population.network,
        )
        for name, population in setup.populations.items()
    }


class AgentIdWrapper(TurnWrapper):
    """`BatchedEnv` whose observations end with a one-hot of the agent in its population.

    Args:
        env: Wrapped environment.
        populations: Agents of the populations concerned, by name.
        device: Device of the turns.
    """

    def __init__(
        self,
        env: BatchedEnv,
        *,
        populations: Mapping[str, tuple[str, ...]],
        device: torch.device,
    ) -> None:
        super().__init__(env)
        self._ids = {
            name: one_hots(env.agents, agents).to(device) for name, agents in populations.items()
        }
        self._own = {
            name: torch.eye(len(agents)).to(device) for name, agents in populations.items()
        }

    def _changed(self, turn: Turn) -> Turn:
        groups, finals = dict(turn.groups), dict(turn.final_observation)
        for name, ids in self._ids.items():
            group, final = groups[name], finals[name]
            # Index -1, no decision, gets any id, because its row is undefined. [B, S] -> [B, S, P]
            who = ids[group.agent_index.clamp(min=0)].to(group.observation.dtype)
            groups[name] = replace(group, observation=torch.cat([group.observation, who], dim=-1))
            # Final observations are in the population's order, so row p gets one-hot p. [P, P] ->
            # [B, P, P]
            own = self._own[name].to(final.dtype).expand(len(final), -1, -1)
            finals[name] = torch.cat([final, own], dim=-1)
        return replace(turn, groups=groups, final_observation=finals)


def one_hots(agents: Sequence[str], population: Sequence[str]) -> torch.Tensor:
    """Return each agent's one-hot in a population, zeros for other agents. float32 [A, P]."""
    # Rows are by agent column, because `agent_index` counts all A agents.
    ids = torch.zeros(len(agents), len(population))
    for place, agent in enumerate(population):
        ids[agents.index(agent), place] = 1.0
    return ids
