"""Record of one environment's episode in the batch: checks values and writes them down.

Shapes: A agents (in the spec's order).

Tests: `tests/arena/envs/test_batched.py`, `tests/arena/envs/test_faults.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from arena.envs.episode_metrics import reported_figures
from arena.envs.outcome import Score
from arena.envs.pettingzoo.buffers import Buffers, Place
from arena.envs.pettingzoo.reward_components import ComponentRow
from arena.envs.spaces.observations import flatten_into, is_bounded, reward_rule
from arena.errors import EnvironmentFault


class EpisodeRow:
    """One environment's part of the buffers, and the results of its episode so far.

    Steppers pass the values of their environment; this class checks and writes them.

    Args:
        buffers: Buffers of the batch.
        b: Index of the environment.
        score: Scoring function of finished episodes.
        keeps_infos: Whether ``score`` reads infos.

    Attributes:
        components: Row of the reward components, credited by the steppers. None: there are none.
    """

    def __init__(self, buffers: Buffers, *, b: int, score: Score, keeps_infos: bool) -> None:
        self._buffers = buffers
        self.b = b
        self.places = buffers.places
        self.first_cell = b * len(buffers.agents)
        self._score = score
        self._keeps_infos = keeps_infos
        self.components = None
        if buffers.components is not None:
            self.components = ComponentRow(
                buffers.component_names, agents=buffers.agents, received=buffers.components[b]
            )
        self._returns = [0.0] * len(buffers.agents)
        self._infos: dict[str, Mapping[str, object]] = {}

    def begin(self) -> None:
        """Begin a new episode."""
        self._returns = [0.0] * len(self._returns)
        self._infos = {}
        # The row of the buffers outlives the episode, and even the environment if it broke.
        self._buffers.has_decided[self.b] = False
        self._buffers.has_ended[self.b] = False

    def ask(self, agent: str, observation: Any, info: Mapping[str, Any] | None) -> None:  # noqa: ANN401
        """Add a pending decision of an agent."""
        place = self.places[agent]
        place.population.ask(self.first_cell + place.column, observation, info)

    def action(self, agent: str, actions: Mapping[str, list[Any]]) -> Any:  # noqa: ANN401
        """Return an agent's action among those of the whole batch by population, [B * S]."""
        place = self.places[agent]
        population = place.population
        return actions[population.name][self.b * population.num_slots + place.slot]

    def credit(self, rewards: Mapping[str, float]) -> None:
        """Add rewards of agents.

        Raises:
            EnvironmentFault: If a reward is not a finite number, or of an unknown agent.
        """
        for agent, reward in rewards.items():
            # Zero is the usual case and cheap to test; NaN and text do not equal 0.
            if reward == 0:
                continue
            place = self.places.get(agent)
            if place is None:
                raise EnvironmentFault(f"agent {agent!r} has a reward but is no possible agent")
            if not is_bounded(reward):
                raise EnvironmentFault(
                    f"agent {agent!r}: a reward must be {reward_rule(reward)}, got {reward!r}"
                )
            # Rewards are added, because an agent may get several in one call, also in steps of
            # dead agents. The return is summed in float64.
            self._buffers.reward[self.b, place.column] += reward
            self._returns[place.column] += float(reward)

    def has_ended(self, agent: str) -> bool:
        """Return whether the agent's end in this episode is recorded."""
        return bool(self._buffers.has_ended[self.b, self.places[agent].column])

    def terminate(self, agent: str, info: Mapping[str, Any] | None) -> None:
        """Record that an agent's episode ended for good."""
        place = self.places[agent]
        self._buffers.terminated[self.b, place.column] = True
        self._end(agent, place, info)

    def truncate(self, agent: str, observation: Any, info: Mapping[str, Any] | None) -> None:  # noqa: ANN401
        """Record that an agent's episode was cut off; ``observation`` is the last one.

        Raises:
            EnvironmentFault: If the observation is not in the space.
        """
        place = self.places[agent]
        self._keep_final(agent, place, observation)
        self._buffers.truncated[self.b, place.column] = True
        self._end(agent, place, info)

    def finish(self, infos: Mapping[str, Any]) -> None:
        """End the episode and score it; agents whose end was never reported have terminated.

        Raises:
            EnvironmentFault: If an agent never reported a configured component.
        """
        buffers, b = self._buffers, self.b
        # Agents that never decided have no row in any rollout, so their ends need no mark.
        decided = [a for a, place in self.places.items() if buffers.has_decided[b, place.column]]
        for agent in decided:
            if not self.has_ended(agent):
                # The environment emptied `agents` without flags, so there is nothing to bootstrap
                # from.
                self.terminate(agent, infos.get(agent))
        if self.components is not None:
            self.components.check(decided)
        if self._keeps_infos:
            # These infos replace those kept at deaths, because the last info of an agent counts.
            for agent, info in infos.items():
                if agent in self.places:
                    self._infos[agent] = info
        returns = dict(zip(buffers.agents, self._returns, strict=True))
        buffers.episode_over[b] = True
        # The score is computed after all ends above, because it may read their infos.
        buffers.score[b] = self._score(returns, self._infos)

    def _keep_final(self, agent: str, place: Place, observation: Any) -> None:  # noqa: ANN401
        if observation is None:
            raise EnvironmentFault(
                f"agent {agent!r} was truncated and must have a last observation, got None"
            )
        population = place.population
        if population.mask == "observation":
            # The mask is no part of the row. A Dict with a mask beside other keys needs no such
            # step, because the layout selects its parts.
            observation = observation["observation"]
        row = population.final_observation[self.b, place.position]
        try:
            flatten_into(population.layout, row, observation)
        except EnvironmentFault as fault:
            raise EnvironmentFault(f"agent {agent!r}: {fault}") from None

    def _end(self, agent: str, place: Place, info: Mapping[str, Any] | None) -> None:
        self._buffers.has_ended[self.b, place.column] = True
        if info and (reported := reported_figures(info)) is not None:
            self._buffers.figures.take(self.b, place.column, reported)
        # Infos are kept now, because PettingZoo removes those of dead agents.
        if self._keeps_infos and info is not None:
            self._infos[agent] = info


class Stepper(Protocol):
    """One environment that fills its row of the buffers."""

    @property
    def on_turn(self) -> str:
        """Agent whose action is carried out, for messages."""

    def start(self, seed: int) -> None:
        """Reset, and set the first pending decisions."""

    def step(self, actions: Mapping[str, list[Any]]) -> bool:
        """Carry out the pending decisions; True if the episode is over.

        Args:
            actions: Actions of the whole batch by population, in the environment's own form, [B *
                S].
        """

    def close(self) -> None:
        """Release everything that the environment holds."""
