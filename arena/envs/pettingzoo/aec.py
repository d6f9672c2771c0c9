"""Stepper of one PettingZoo environment in which agents take turns.

An agent is on turn; its action may bring rewards to any agent and end any agent's episode. Dead
agents are stepped with None, as PettingZoo requires, and have no decisions.

Tests: `tests/arena/envs/pettingzoo/test_aec.py`, `tests/arena/envs/test_batched.py`,
`tests/arena/envs/test_faults.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arena.envs.pettingzoo.cycle_to_parallel import holder_of_state
from arena.envs.pettingzoo.episode import EpisodeRow
from arena.errors import EnvironmentFault

Actions = Mapping[str, list[Any]]
"""Actions by population in the environment's own form, [B]."""


class AecStepper:
    """Stepper from decision to decision that fills a row of the batch.

    Args:
        env: A ``pettingzoo.AECEnv``.
        row: Row of the batch.
    """

    # Slots keep each stepper small: a thousand steppers do not fit into the cache.
    __slots__ = (
        "_b",
        "_components",
        "_env",
        "_first_cell",
        "_max_dead_steps",
        "_on_turn",
        "_places",
        "_row",
        "_state",
    )

    def __init__(self, env: Any, *, row: EpisodeRow) -> None:  # noqa: ANN401
        self._env = env
        self._state = holder_of_state(env)
        self._row = row
        self._b = row.b
        self._components = row.components
        self._first_cell = row.first_cell
        self._places = row.places
        self._on_turn = ""
        # Each dead agent takes one step to leave. One that stays, or is replaced by another dead
        # one for ever, must not hang the loop.
        self._max_dead_steps = 2 * len(row.places) + 1

    @property
    def on_turn(self) -> str:
        """Agent whose action is carried out, for messages."""
        return f"agent {self._on_turn!r} on turn"

    def start(self, seed: int) -> None:
        """Reset, and set the first pending decision.

        Raises:
            EnvironmentFault: If no agent is alive.
        """
        self._on_turn = ""
        self._env.reset(seed=seed)
        self._row.begin()
        state = self._state
        if self._components is not None:
            self._components.begin_turns(state.infos)
        agent = state.agent_selection if state.agents else None
        if agent is None or state.terminations[agent] or state.truncations[agent]:
            raise EnvironmentFault(f"after reset an agent must be alive and on turn, got {agent!r}")
        self._ask(agent)

    def step(self, actions: Actions) -> bool:
        """Carry out one decision, then set the next pending one.

        Args:
            actions: Actions of the whole batch.

        Returns:
            Whether the episode is over; then there is no pending decision.
        """
        # Where agents take turns, a population has one slot: [B, 1] -> [B], indexed by b.
        self._env.step(actions[self._places[self._on_turn].population.name][self._b])
        state = self._state
        if self._components is not None:
            self._components.credit_turn(state.infos)
        # Most steps of a turn-based game give no reward, and `any` is cheaper than a call that
        # adds zeros.
        if any(state.rewards.values()):
            self._row.credit(state.rewards)
        agent: str | None
        # Deaths are rare, so the usual step does not loop over the agents.
        if True in state.terminations.values() or True in state.truncations.values():
            agent = self._bury()
        else:
            agent = state.agent_selection if state.agents else None
        if agent is None:
            self._row.finish(state.infos)
            return True
        self._ask(agent)
        return False

    def close(self) -> None:
        """Release everything that the environment holds."""
        self._env.close()

    def _ask(self, agent: str) -> None:
        self._on_turn = agent
        place = self._places[agent]
        population = place.population
        info = self._state.infos.get(agent) if population.reads_infos else None
        # The decision goes directly to the lists of the whole batch, which is faster.
        population.ask(self._first_cell + place.column, self._env.observe(agent), info)

    def _bury(self) -> str | None:
        """Record deaths; step dead agents and credit their rewards until a live one is on turn."""
        state = self._state
        for _ in range(self._max_dead_steps):
            self._note_deaths()
            if not state.agents:
                return None
            agent: str = state.agent_selection
            if not (state.terminations[agent] or state.truncations[agent]):
                return agent
            # AEC requires one step with the action None for each dead agent before it is removed.
            self._env.step(None)
            # Before this step, `rewards` were those of the previous step, which are credited
            # already.
            self._row.credit(state.rewards)
            if self._components is not None:
                self._components.credit_turn(state.infos)
        if all(state.terminations[agent] or state.truncations[agent] for agent in state.agents):
            return None
        raise EnvironmentFault(
            f"only dead agents are on turn, the last is {agent!r}, but some of {state.agents} live"
        )

    def _note_deaths(self) -> None:
        row, state = self._row, self._state
        infos = state.infos
        # The items are copied, because `observe` is the environment's code and may change them.
        for agent, terminated in tuple(state.terminations.items()):
            if row.has_ended(agent):
                continue
            # If both flags are set, termination wins: a terminal state has no value to bootstrap
            # from.
            if terminated:
                row.terminate(agent, infos.get(agent))
            elif state.truncations[agent]:
                row.truncate(agent, self._env.observe(agent), infos.get(agent))
