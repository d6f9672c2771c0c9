"""Environments that are stepped one by one, shown as tensors.

Tests: `tests/arena/envs/test_batched.py`, `tests/faults/test_environment_faults.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from arena.envs.base import Group, Phase, Turn
from arena.envs.chance import check_seeds
from arena.envs.one_by_one.envs import OneByOne
from arena.envs.pettingzoo.buffers import Buffers
from arena.envs.workers.envs import WorkerEnvs
from arena.processes.settings import SETTINGS


class PettingZooBatch:
    """`BatchedEnv` of environments that are stepped one by one.

    Numpy and torch share the memory: environments write rows, and the turn is read without a copy.

    Args:
        envs: The environments, in this process or in others.
        device: Device of the turns. On the CPU they are the buffers themselves, elsewhere copies.
    """

    def __init__(self, envs: OneByOne | WorkerEnvs, *, device: torch.device) -> None:
        self._envs = envs
        self._buffers = envs.buffers
        self._device = device
        self._turn = _shared_turn(envs.buffers)
        self._is_reset = False

    @property
    def num_envs(self) -> int:
        """Number B of environments."""
        return self._buffers.num_envs

    @property
    def agents(self) -> tuple[str, ...]:
        """The A agents in the order of ``reward``'s columns."""
        return self._buffers.agents

    def reset(self, seeds: Sequence[int]) -> Turn:
        """Start all environments: (seeds[b], k) alone seeds episode k of environment b.

        Raises:
            ValueError: If there is not one seed in [0, 2**63) for each environment.
            EnvironmentFault: If an environment breaks its contract.
        """
        check_seeds(seeds, num_envs=self.num_envs)
        SETTINGS.run(self._envs.reset, seeds)
        self._is_reset = True
        return self._now()

    def step(self, actions: Mapping[str, torch.Tensor]) -> Turn:
        """Carry out the pending decisions.

        Raises:
            ValueError: If an action is not legal.
            EnvironmentFault: If an environment breaks its contract.
        """
        if not self._is_reset:
            raise RuntimeError("step needs a reset first")
        chosen = {name: rows.cpu().numpy() for name, rows in actions.items()}
        SETTINGS.run(self._envs.step, chosen)
        return self._now()

    def halt(self, environments: torch.Tensor) -> None:
        """Halt environments until they are resumed; they have no pending decisions meanwhile.

        Args:
            environments: Environments to halt. bool [B].
        """
        self._envs.halt(environments.nonzero().flatten().tolist())

    def resume(self, environments: torch.Tensor) -> None:
        """Let halted environments begin their episode in the next call of ``step``.

        Args:
            environments: Environments to resume. bool [B].
        """
        self._envs.resume(environments.nonzero().flatten().tolist())

    def tell(self, phases: Sequence[Phase]) -> None:
        """Set the phase of each environment's episodes from the next one on. Length B."""
        self._envs.tell(phases)

    def close(self) -> None:
        """Release everything that the environments hold.

        Raises:
            EnvironmentFault: If one of them raises; all are closed before.
        """
        SETTINGS.run(self._envs.close)

    def _now(self) -> Turn:
        buffers, turn = self._buffers, self._turn
        # Names are limited only now, so that metrics of episodes that became void in this call do
        # not count.
        buffers.figures.limit()
        turn.void = torch.from_numpy(buffers.is_void) if buffers.has_void else None
        is_there = self._device.type == "cpu"
        return turn if is_there else turn.mapped(lambda tensor: tensor.to(self._device))


def _shared_turn(buffers: Buffers) -> Turn:
    populations, states = buffers.populations.items(), buffers.states
    return Turn(
        groups={
            name: Group(
                agent_index=torch.from_numpy(population.agent_index),
                observation=torch.from_numpy(population.observation),
                action_mask=torch.from_numpy(population.action_mask) if population.mask else None,
                action_shape=population.actions.row_shape,
            )
            for name, population in populations
        },
        reward=torch.from_numpy(buffers.reward),
        terminated=torch.from_numpy(buffers.terminated),
        truncated=torch.from_numpy(buffers.truncated),
        final_observation={
            name: torch.from_numpy(population.final_observation) for name, population in populations
        },
        episode_over=torch.from_numpy(buffers.episode_over),
        score=torch.from_numpy(buffers.score),
        components=None if buffers.components is None else torch.from_numpy(buffers.components),
        # The turn refers to the list itself, which is filled and cleared in place.
        figures=buffers.figures.reports,
        episode=torch.from_numpy(buffers.episode),
        state=None if states is None else torch.from_numpy(states.now),
        final_state=None if states is None else torch.from_numpy(states.final),
    )
