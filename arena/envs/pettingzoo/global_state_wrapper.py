"""Environments whose turns contain their `state()`, for value networks.

Tests: `tests/arena/envs/spaces/test_critic_input.py`.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from arena.envs.base import BatchedEnv, Turn, TurnWrapper
from arena.envs.pettingzoo.states import States


class GlobalStateWrapper(TurnWrapper):
    """`BatchedEnv` whose turns contain the states that its steppers read.

    Args:
        env: Wrapped environment.
        states: States that its steppers write.
        device: Device of the turns.
    """

    def __init__(self, env: BatchedEnv, *, states: States, device: torch.device) -> None:
        super().__init__(env)
        self._device = device
        self._now = torch.from_numpy(states.now)
        self._final = torch.from_numpy(states.final)

    def _changed(self, turn: Turn) -> Turn:
        device = self._device
        # A new Turn: the wrapped one is shared, and on the CPU the states are the buffers
        # themselves.
        return replace(turn, state=self._now.to(device), final_state=self._final.to(device))
