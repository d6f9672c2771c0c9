"""Input of a centralized critic, a value network that sees more than its policy. Torch-free.

Yu et al., "The Surprising Effectiveness of PPO in Cooperative Multi-Agent Games" (NeurIPS 2022),
https://arxiv.org/abs/2103.01955. Policies act on their own observations; values are needed in
training only, which has all observations. Shapes: P agents of a population, G numbers of a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from arena.config import NetworkConfig
from arena.environment_spec import EnvironmentSpec
from arena.errors import ConfigError
from arena.spaces import ObservationLayout, with_agent_id


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticInput:
    """Rows that a population's value network reads.

    Attributes:
        layout: Layout of one row. With several agents in the population it ends with an agent id.
        agents: The population's P agents.
        teams: Agents whose observations are side by side in an agent's rows; empty: a row is the
            environment's state.
        seen: Population and observation size of each agent in a team.
        in_turn: Whether one agent decides at a time; the rows then have the others' last
            observations.
    """

    layout: ObservationLayout
    agents: tuple[str, ...]
    teams: Mapping[str, tuple[str, ...]]
    seen: Mapping[str, tuple[str, int]]
    in_turn: bool


def critic_input(
    network: NetworkConfig,
    *,
    population: str,
    populations: Mapping[str, tuple[str, ...]],
    sides: Mapping[str, tuple[str, ...]],
    spec: EnvironmentSpec,
) -> CriticInput | None:
    """Return the input of a population's centralized critic; None: it has none.

    Args:
        network: Configuration whose ``critic`` names the input.
        population: Name of the population.
        populations: Agents of all populations.
        sides: Agents by side.
        spec: Environment's spec.

    Raises:
        ConfigError: If there is no further input, or it differs between the population's agents.
    """
    if network.critic == "own":
        return None
    agents = populations[population]
    teams: dict[str, tuple[str, ...]] = {}
    if network.critic == "joint":
        # Only the own side's observations are used: a value that depends on opponents'
        # observations is biased for a policy that does not see them.
        teams = _teams(agents, sides=sides, agents_in_order=spec.agents)
        layout = _joint_layout(population, teams=teams, spec=spec)
    elif spec.state is None:
        raise ConfigError(
            f"populations.{population}.network.critic state needs what state() of {spec.id} gives, "
            f"which was not looked at when the environment was inspected"
        )
    else:
        layout = ObservationLayout.from_json(spec.state)
    # Members of a side may belong to other populations.
    of = {agent: name for name, members in populations.items() for agent in members}
    return CriticInput(
        # One network serves all P agents, and a team or a state looks the same to each of them, so
        # an agent id is added.
        layout=with_agent_id(layout, num_agents=len(agents)) if len(agents) > 1 else layout,
        agents=agents,
        teams=teams,
        seen={
            agent: (of[agent], _layout(spec, agent).size)
            for team in teams.values()
            for agent in team
        },
        in_turn=spec.api == "aec",
    )


def _teams(
    agents: Sequence[str],
    *,
    sides: Mapping[str, tuple[str, ...]],
    agents_in_order: tuple[str, ...],
) -> dict[str, tuple[str, ...]]:
    """Return the agents of each agent's side, in the environment's order."""
    return {
        # One order for the whole side gives all its agents the same row.
        agent: tuple(other for other in agents_in_order if other in side)
        for agent in agents
        for side in sides.values()
        if agent in side
    }


def _joint_layout(
    population: str, *, teams: Mapping[str, tuple[str, ...]], spec: EnvironmentSpec
) -> ObservationLayout:
    key = f"populations.{population}.network.critic joint"
    if all(len(team) == 1 for team in teams.values()):
        raise ConfigError(
            f"{key} needs a side with several agents, each of {list(teams)} is a side of its own: "
            f"name teams in environment.sides, such as {{team: [{', '.join(teams)}]}}"
        )
    seen = {
        agent: [spec.agent_specs[other].observation for other in team]
        for agent, team in teams.items()
    }
    first, *others = teams
    for agent in others:
        # One network reads the rows of all agents of the population, so sizes must agree.
        if seen[agent] != seen[first]:
            raise ConfigError(
                f"{key} needs sides whose agents see the same, one after the other: the side of "
                f"{first!r} is {teams[first]}, that of {agent!r} {teams[agent]}"
            )
    # A Tuple keeps its order, in which the observations are concatenated.
    return ObservationLayout.from_json({"kind": "Tuple", "spaces": seen[first]})


def _layout(spec: EnvironmentSpec, agent: str) -> ObservationLayout:
    return ObservationLayout.from_json(spec.agent_specs[agent].observation)
