"""Twins that play another game: what a comparison must catch."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from arena.envs.base import Group
from arena.envs.batched.connect_four import ConnectFour
from arena.envs.batched.game import StepResult
from arena.envs.batched.tictactoe import TicTacToe


class MissingDiagonal(ConnectFour):
    """Lines that rise to the right do not win."""

    def __init__(self, num_games: int, *, device: torch.device, **kwargs: object) -> None:
        super().__init__(num_games, device=device, **kwargs)
        assert self._lines.flatten().tolist() == [1, 7, 6, 8]
        self._lines = self._lines[:3]


class WrongSeat(ConnectFour):
    """The loser gets the winner's reward."""

    def step(self, actions: Sequence[torch.Tensor]) -> StepResult:
        result = super().step(actions)
        return StepResult(reward=result.reward.flip(1), terminated=result.terminated)


class LateMask(ConnectFour):
    """A column that has just been filled may still be chosen once."""

    _last: torch.Tensor | None = None

    def decisions(self) -> tuple[Group]:
        (group,) = super().decisions()
        mask = group.action_mask
        late = mask if self._last is None else self._last
        self._last = mask
        return (Group(group.agent_index, group.observation, late),)


class SwappedPlanes(ConnectFour):
    """Whoever is on turn sees the other's stones first."""

    def decisions(self) -> tuple[Group]:
        (group,) = super().decisions()
        shape = group.observation.shape
        planes = group.observation.reshape(*shape[:2], -1, 2).flip(3).reshape(shape)
        return (Group(group.agent_index, planes, group.action_mask),)


class StrictTicTacToe(TicTacToe):
    """Who loses loses twice; the score is the same."""

    def step(self, actions: Sequence[torch.Tensor]) -> StepResult:
        result = super().step(actions)
        reward = torch.where(result.reward < 0.0, 2.0 * result.reward, result.reward)
        return StepResult(reward=reward, terminated=result.terminated)
