"""Stepper of one PettingZoo environment in which all live agents decide at once.

Tests: `tests/arena/envs/test_batched.py`, `tests/arena/envs/test_faults.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arena.envs.pettingzoo.cycle_to_parallel import Cycle
from arena.envs.pettingzoo.episode import EpisodeRow
from arena.errors import EnvironmentFault

Actions = Mapping[str, list[Any]]
"""Actions by population in the environment's own form, [B * P]."""


class ParallelStepper:
    """Stepper of one environment that fills its row of the batch.

    Args:
        env: A ``pettingzoo.ParallelEnv``.
        row: Row of the batch.
    """

    def __init__(self, env: Any, *, row: EpisodeRow) -> None:  # noqa: ANN401
        self._env = env
        self._row = row
        self._deciding: list[str] = []
        # A `Cycle` omits rewards of zero.
        self._rewards_all = not isinstance(env, Cycle)
        # A `Cycle` credits the components of each turn itself.
        self._components = row.components if self._rewards_all else None

    @property
    def on_turn(self) -> str:
        """Agents whose actions are carried out, for messages."""
        return f"agents {self._deciding} on turn"

    def start(self, seed: int) -> None:
        """Reset, and set the decisions of all present agents.

        Raises:
            EnvironmentFault: If no agent is present.
        """
        self._deciding = []
        result = self._env.reset(seed=seed)
        if not isinstance(result, tuple) or len(result) != 2:
            raise EnvironmentFault(f"reset must return (observations, infos), got {type(result)}")
        observations, infos = result
        self._row.begin()
        self._ask(observations, infos, terminations={}, truncations={})
        if not self._deciding:
            raise EnvironmentFault("after reset an agent must be alive and have an observation")

    def step(self, actions: Actions) -> bool:
        """Carry out one decision of each agent, then set those of the live agents.

        Args:
            actions: Actions of the whole batch.

        Returns:
            Whether the episode is over; then there are no pending decisions.
        """
        chosen = {agent: self._row.action(agent, actions) for agent in self._deciding}
        observations, rewards, terminations, truncations, infos = self._env.step(chosen)
        if self._components is not None:
            self._components.credit_all(infos)
        # Counts are compared first, because comparing names takes longer.
        if self._rewards_all and len(rewards) < len(chosen):
            self._check_rewards(rewards)
        self._row.credit(rewards)
        # Ends are recorded before the next decisions, which leave dead agents out.
        if True in terminations.values() or True in truncations.values():
            self._note_deaths(observations, terminations, truncations, infos)
        self._ask(observations, infos, terminations=terminations, truncations=truncations)
        if self._deciding:
            return False
        self._row.finish(infos)
        return True

    def close(self) -> None:
        """Release everything that the environment holds."""
        self._env.close()

    def _check_rewards(self, rewards: Mapping[str, float]) -> None:
        missing = [agent for agent in self._deciding if agent not in rewards]
        # An agent that vanished in this step may lack a reward.
        alive = [agent for agent in missing if agent in self._env.agents]
        if alive:
            raise EnvironmentFault(f"agents {alive} decided and must have a reward, got none")

    def _ask(
        self,
        observations: Mapping[str, Any],
        infos: Mapping[str, Any],
        *,
        terminations: Mapping[str, bool],
        truncations: Mapping[str, bool],
    ) -> None:
        """Set the decisions of live agents; in PettingZoo, one without an observation is dead."""
        deciding = []
        for agent in self._env.agents:
            if terminations.get(agent) or truncations.get(agent) or agent not in observations:
                continue
            self._row.ask(agent, observations[agent], infos.get(agent))
            deciding.append(agent)
        self._deciding = deciding

    def _note_deaths(
        self,
        observations: Mapping[str, Any],
        terminations: Mapping[str, bool],
        truncations: Mapping[str, bool],
        infos: Mapping[str, Any],
    ) -> None:
        row = self._row
        # All agents are checked, because a flag may come for an agent that did not decide.
        for agent in row.places:
            if row.has_ended(agent):
                continue
            # If both flags are set, termination wins: a terminal state has no value to bootstrap
            # from.
            if terminations.get(agent):
                row.terminate(agent, infos.get(agent))
            elif truncations.get(agent):
                row.truncate(agent, observations.get(agent), infos.get(agent))
