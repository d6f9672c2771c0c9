"""Inputs of a centralized critic, assembled from turns.

Shapes: B environments, A agents, S decisions of a population at once, P agents of a population,
K different teams, F numbers of an observation, J of a joint one or a state, G of an input.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch

from arena.envs.base import Turn
from arena.envs.spaces.agent_id_wrapper import one_hots
from arena.envs.spaces.critic_input import CriticInput


class CriticRows:
    """The inputs of one population's centralized critic, from the latest shown turn.

    Args:
        critic: Layout of the inputs.
        agents: The A agents.
        populations: Agents by population.
        device: Device of the turns.
    """

    def __init__(
        self,
        critic: CriticInput,
        *,
        agents: tuple[str, ...],
        populations: Mapping[str, tuple[str, ...]],
        device: torch.device,
    ) -> None:
        self._source: _Source = (
            _Joint(critic, agents=agents, populations=populations, device=device)
            if critic.teams
            else _State()
        )
        columns = [agents.index(agent) for agent in critic.agents]
        self._columns = torch.tensor(columns, device=device)
        # With a single agent the id would be the same in each row, so it is omitted.
        self._ids = None
        if len(critic.agents) > 1:
            self._ids = one_hots(agents, critic.agents).to(device)

    def show(self, turn: Turn) -> None:
        """Read a turn. Every turn is to be shown, in order."""
        self._source.show(turn)

    def of(self, agent_index: torch.Tensor) -> torch.Tensor:
        """Return the rows of decisions.

        Args:
            agent_index: Index of the deciding agent, -1 for no decision. int64 [B, S].

        Returns:
            float32 or uint8 [B, S, G]; undefined where there is no decision.
        """
        # Index -1, no decision, reads agent 0; rows there are undefined anyway.
        return self._with_agent_id(self._source.now(agent_index.clamp(min=0)), agent_index)

    def final(self) -> torch.Tensor:
        """Return the rows of the population's agents at their truncation.

        Returns:
            [B, P, G]; undefined for agents that were not truncated in the turn.
        """
        agent_index = self._columns.expand(self._source.num_envs, -1)
        return self._with_agent_id(self._source.final(agent_index), agent_index)

    def _with_agent_id(self, rows: torch.Tensor, agent_index: torch.Tensor) -> torch.Tensor:
        if self._ids is None:
            return rows
        agent_id = self._ids[agent_index.clamp(min=0)].to(rows.dtype)
        return torch.cat([rows, agent_id], dim=-1)


class _Source(Protocol):
    """Rows without the one-hot agent id."""

    @property
    def num_envs(self) -> int:
        """Number B of environments."""

    def show(self, turn: Turn) -> None:
        """Read a turn; see `CriticRows.show`."""

    def now(self, agent_index: torch.Tensor) -> torch.Tensor:
        """Return rows of agents, [B, S] to [B, S, J]."""

    def final(self, agent_index: torch.Tensor) -> torch.Tensor:
        """Return rows of truncated agents, [B, P] to [B, P, J]."""


class _State:
    """Rows from the environment's state."""

    def __init__(self) -> None:
        self._turn: Turn | None = None

    @property
    def num_envs(self) -> int:
        return len(self._shown.episode_over)

    def show(self, turn: Turn) -> None:
        self._turn = turn

    def now(self, agent_index: torch.Tensor) -> torch.Tensor:
        return _for_each(self._shown.state, agent_index)

    def final(self, agent_index: torch.Tensor) -> torch.Tensor:
        return _for_each(self._shown.final_state, agent_index)

    @property
    def _shown(self) -> Turn:
        if self._turn is None:
            raise ValueError("a critic's rows need a turn first")
        return self._turn


def _for_each(state: torch.Tensor | None, agent_index: torch.Tensor) -> torch.Tensor:
    if state is None:
        raise ValueError("a critic of states needs environments that tell their state")
    # [B, J] -> [B, S, J], as a view, because all agents see the same state.
    return state[:, None].expand(-1, agent_index.shape[1], -1)


class _Joint:
    """The observations of a team side by side, with zeros for absent agents.

    Where all agents decide at once, these are the observations of the deciding agents. Where agents
    take turns, each agent's is its last one in this episode.
    """

    def __init__(
        self,
        critic: CriticInput,
        *,
        agents: tuple[str, ...],
        populations: Mapping[str, tuple[str, ...]],
        device: torch.device,
    ) -> None:
        # Agents of a team share one row, so it is assembled once for each of K teams.
        teams = list(dict.fromkeys(critic.teams.values()))
        self._teams = [
            [(critic.seen[member][0], agents.index(member)) for member in team] for team in teams
        ]
        # Agents without a critic input get 0, because their rows are never read.
        team_of = [teams.index(critic.teams[a]) if a in critic.teams else 0 for a in agents]
        self._team_of = torch.tensor(team_of, device=device)
        self._sizes = {population: size for population, size in critic.seen.values()}
        self._columns = {
            name: torch.tensor([agents.index(agent) for agent in populations[name]], device=device)
            for name in self._sizes
        }
        self._num_agents = len(agents)
        self._in_turn = critic.in_turn
        # `_seen` has the last observation of every agent, by population, and a last column for
        # missing decisions. [B, A + 1, F].
        self._seen: dict[str, torch.Tensor] = {}
        self._turn: Turn | None = None

    @property
    def num_envs(self) -> int:
        return len(self._team_rows_of(self._seen)[0])

    def show(self, turn: Turn) -> None:
        self._turn = turn
        over = turn.terminated | turn.truncated | turn.episode_over[:, None]
        for name, size in self._sizes.items():
            group = turn.groups[name]
            # A one-hot agent id may follow the observation, so the row is cut; `_with_agent_id`
            # adds the deciding agent's.
            observation = group.observation[..., :size]
            if name not in self._seen:
                shape = (len(over), self._num_agents + 1, size)
                self._seen[name] = observation.new_zeros(shape)
            seen = self._seen[name]
            if self._in_turn:
                # Where agents take turns, an agent's last observation stays until its episode
                # ends.
                seen[:, :-1].masked_fill_(over[..., None], 0)
            else:
                seen.zero_()
            # Index -1, no decision, maps to the last column.
            where = (group.agent_index % (self._num_agents + 1))[..., None]
            seen.scatter_(1, where.expand_as(observation), observation)

    def now(self, agent_index: torch.Tensor) -> torch.Tensor:
        return self._of_teams(self._seen, agent_index)

    def final(self, agent_index: torch.Tensor) -> torch.Tensor:
        turn = self._turn
        if turn is None:
            raise ValueError("a critic's rows need a turn first")
        final = {}
        for name, size in self._sizes.items():
            columns = self._columns[name]
            # Observations of the next episode are not part of the ended one.
            seen = self._seen[name].masked_fill(turn.episode_over[:, None, None], 0)
            # Groups have only pending decisions, so the final observation is added here.
            truncated = turn.truncated[:, columns, None]
            last = turn.final_observation[name][..., :size]
            seen[:, columns] = torch.where(truncated, last, seen[:, columns])
            final[name] = seen
        return self._of_teams(final, agent_index)

    def _of_teams(
        self, seen: Mapping[str, torch.Tensor], agent_index: torch.Tensor
    ) -> torch.Tensor:
        # K x [B, J] -> [B, K, J] -> [B, S, J], by the team of each decision's agent
        rows = torch.stack(self._team_rows_of(seen), dim=1)
        team = self._team_of[agent_index][..., None]
        return rows.gather(1, team.expand(-1, -1, rows.shape[2]))

    def _team_rows_of(self, seen: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
        """Return the rows of each of the K teams, [B, J]."""
        return [
            torch.cat([seen[name][:, column] for name, column in team], dim=1)
            for team in self._teams
        ]
