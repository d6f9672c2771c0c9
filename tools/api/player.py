"""A loaded player: numpy in, numpy out.

Tests: `tests/tools/api/test_load.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from arena.errors import NoValue

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

    from arena.export.champion import GraphPlayer


class Player:
    """Player of any origin: a policy, a ghost, a champion, an export, a mixture or a bot.

    Observations and actions are those of the PettingZoo environment: arrays, numbers, and
    dictionaries and tuples of these. Each method takes one observation, or a batch in which every
    array has a leading axis of N. It keeps the state of recurrent policies, for each agent, and of
    bots until `reset`. Not thread-safe. Shapes: n choices of all categories of an action.

    Attributes:
        name: PLAYER that it was loaded by; of a bot its canonical spelling.
    """

    def __init__(
        self,
        name: str,
        parts: Mapping[str, GraphPlayer],
        *,
        why_no_value: str,
        modules: Callable[[str], torch.nn.Module],
    ) -> None:
        """Take over the parts; see `load`.

        Args:
            name: PLAYER that it was loaded by.
            parts: Player of each population.
            why_no_value: Reason for which a player of a population has no value, if one has none.
            modules: Function that makes the torch module of a population's player.
        """
        self.name = name
        self._parts = dict(parts)
        self._why_no_value = why_no_value
        self._modules = modules

    def __repr__(self) -> str:
        return f"Player({self.name!r}, agents={list(self.agents)})"

    @property
    def agents(self) -> tuple[str, ...]:
        """Agents that it can play."""
        return tuple(agent for part in self._parts.values() for agent in part.agents)

    def act(
        self,
        observation: object,
        action_mask: object = None,
        *,
        agent: str | None = None,
        sample: bool = False,
        seed: int | None = None,
    ) -> Any:  # noqa: ANN401  (whatever the environment takes)
        """Choose an action, or one for each observation of a batch.

        Args:
            observation: Observation from the environment, its dictionary with an ``action_mask``
                included. In a batch each array has a leading axis of N.
            action_mask: Non-zero for legal choices: [n], of several categories side by side or
                nested as in the environment; in a batch [N, n]. Needed where the environment has
                masks and ``observation`` does not contain it.
            agent: Deciding agent. Needed by a player of several populations, by a policy with
                ``network.agent_id``, and where a recurrent policy plays several agents in one game.
            sample: Whether to sample instead of taking the likeliest action. Bots decide
                themselves.
            seed: Seed that restarts the random numbers, for this and later calls.

        Returns:
            Action in the environment's form. In a batch each array has a leading axis of N, and
                the choices of a Discrete are int64 [N].

        Raises:
            ValueError: If an argument does not fit the environment; the text has rule and value.
            ConfigError: If a bot raises, or answers with an illegal action.
        """
        _, part = self._part(agent)
        return part.act(observation, action_mask, agent=agent, sample=sample, seed=seed)

    def probabilities(
        self, observation: object, action_mask: object = None, *, agent: str | None = None
    ) -> npt.NDArray[np.float64]:
        """Return the probability of each choice if actions are sampled; illegal ones have 0.

        A recurrent policy stays in its state. Of a mixture the member that plays the episode
        answers.

        Args:
            observation: As for `act`.
            action_mask: As for `act`.
            agent: As for `act`.

        Returns:
            Probabilities of all categories side by side, each of which sums to 1. float64 [n], or
                [N, n] of a batch.

        Raises:
            ValueError: If an argument does not fit the environment, if actions are numbers alone,
                or if the player is a user's bot.
        """
        _, part = self._part(agent)
        return part.probabilities(observation, action_mask, agent=agent)

    def value(
        self, observation: object, *, agent: str | None = None
    ) -> float | npt.NDArray[np.float32]:
        """Return the expected discounted return of the agent, in units of reward.

        A recurrent policy stays in its state. Of a mixture the member that plays the episode
        answers.

        Args:
            observation: As for `act`; no mask is needed.
            agent: As for `act`.

        Returns:
            A number, or float32 [N] of a batch.

        Raises:
            NoValue: If the player has no value function: a bot, or a policy with a centralized
                critic.
            ValueError: If an argument does not fit the environment.
        """
        _, part = self._part(agent)
        if not part.has_value:
            raise NoValue(f"{self.name} has no value function: {self._why_no_value}")
        return part.value(observation, agent=agent)

    def reset(self, *, seed: int | None = None) -> None:
        """Begin a new episode: clear states of recurrent policies and bots, draw from mixtures.

        Args:
            seed: Seed that restarts the random numbers. None: they go on.
        """
        for part in self._parts.values():
            part.reset(seed=seed)

    def module(self, *, agent: str | None = None) -> torch.nn.Module:
        """Return a copy of the policy's network, an `arena.networks.actor_critic.ActorCritic`.

        It takes rows of flattened observations, float32 [N, F]: ``logits(rows, action_mask)`` and
        ``value(rows)`` are what `probabilities` and `value` are computed from. Of a mixture it is
        the network of the member that plays the episode. This imports torch.

        Args:
            agent: Agent whose policy is wanted. Needed by a player of several populations.

        Raises:
            ConfigError: If the player is a bot.
            CheckpointError: If the weights are missing or damaged.
        """
        population, _ = self._part(agent)
        return self._modules(population)

    def _part(self, agent: str | None) -> tuple[str, GraphPlayer]:
        """Return the population and the player of an agent; None: of the only population."""
        if agent is None:
            if len(self._parts) > 1:
                raise ValueError(
                    f"agent is needed: {self.name} plays several populations, one of "
                    f"{list(self.agents)} decides"
                )
            return next(iter(self._parts.items()))
        for population, part in self._parts.items():
            if agent in part.agents:
                return population, part
        raise ValueError(f"agent must be one of {list(self.agents)}, got {agent!r}")
