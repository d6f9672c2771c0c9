"""Batched games for tests, as users would write them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch

from arena.environment_spec import AgentSpec
from arena.envs.base import Group
from arena.envs.batched.game import StepResult
from arena.envs.chance import uniforms

HUNTER = AgentSpec(
    observation={"kind": "Box", "shape": [3], "dtype": "float32", "low": "-inf", "high": "inf"},
    action={"kind": "Discrete", "n": 3, "start": 0},
    mask=None,
)
HARE = AgentSpec(
    observation={"kind": "Box", "shape": [2], "dtype": "float32", "low": "-inf", "high": "inf"},
    action={"kind": "Discrete", "n": 2, "start": 0},
    mask="observation",
)


class Untold(Exception):
    """Error without a text."""

    def __str__(self) -> str:
        raise LookupError


def _change_settings() -> None:
    torch.set_default_dtype(torch.float64)
    sys.setrecursionlimit(1234)


class Hunt:
    """Two hunters and a hare decide at once on unequal spaces; chance sets each game's length.

    Episodes are cut off after 2 to 5 steps (``length``), or end for good when the hare plays 1. The
    first hunter is gone after one step. A hunter's reward is its action, the hare's is -1.
    """

    api: Literal["parallel"] = "parallel"
    agents = ("hunter_0", "hare_0", "hunter_1")
    groups = (("hunter_0", "hunter_1"), ("hare_0",))
    agent_specs: ClassVar[Mapping[str, AgentSpec]] = {
        "hunter_0": HUNTER,
        "hare_0": HARE,
        "hunter_1": HUNTER,
    }

    def __init__(self, num_games: int, *, device: torch.device, fault: str = "") -> None:
        self.fault = fault
        self.clock = torch.zeros(num_games, dtype=torch.int64, device=device)
        self.length = torch.zeros(num_games, dtype=torch.int64, device=device)

    def reset(self, games: torch.Tensor, *, key: torch.Tensor) -> None:
        if self.fault == "settings_in_reset":
            _change_settings()
        self.clock = self.clock.masked_fill(games, 0)
        drawn = 2 + (uniforms(key, draw=0) * 4).long()
        self.length = torch.where(games, drawn, self.length)

    def decisions(self) -> Sequence[Group]:
        clock, num_games = self.clock, len(self.clock)
        hunters = torch.tensor([0, 2]).repeat(num_games, 1)
        hunters[:, 0] = torch.where(clock == 0, 0, -1)
        seen = torch.stack((clock.float(), self.length.float(), clock.float() * 0.5), dim=1)
        mask = torch.ones(num_games, 1, 2, dtype=torch.bool)
        mask[:, 0, 1] = clock > 0
        if self.fault == "mask":
            mask[:, :, :] = clock[:, None, None] < 1
        if self.fault == "observation":
            seen[0, 0] = torch.nan
        if self.fault == "shape":
            seen = seen[:-1]
        return (
            Group(hunters, seen[:, None].repeat(1, 2, 1), None),
            Group(
                torch.ones(num_games, 1, dtype=torch.int64), seen[:, None, :2].contiguous(), mask
            ),
        )

    def step(self, actions: Sequence[torch.Tensor]) -> StepResult:
        if self.fault == "raise":
            raise RuntimeError("the hare ran away")
        if self.fault == "settings_in_step":
            _change_settings()
        if self.fault == "untold":
            raise Untold
        hunters, hare = actions[0].float(), actions[1][:, 0]
        first = self.clock == 0
        self.clock = self.clock + 1
        reward = torch.stack(
            (hunters[:, 0], torch.full_like(hunters[:, 0], -1.0), hunters[:, 1]), 1
        )
        if self.fault == "reward":
            reward[0, 0] = torch.inf
        caught = hare == 1
        terminated = torch.stack((first, caught, caught), dim=1)
        late = (self.clock == self.length) & ~caught
        truncated = torch.stack((torch.zeros_like(late), late, late), dim=1)
        last = torch.stack((self.clock.float(), self.length.float(), self.clock * 0.5), dim=1)
        return StepResult(
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            final_observation=(last[:, None].repeat(1, 2, 1), last[:, None, :2].contiguous()),
        )


class TakesTurns:
    """Two agents in turn for four decisions; the first action of 1 wins. One mask."""

    api: Literal["aec"] = "aec"
    agents = ("a_0", "b_0")
    groups = (("a_0", "b_0"),)
    agent_specs: ClassVar[Mapping[str, AgentSpec]] = dict.fromkeys(("a_0", "b_0"), HARE)

    def __init__(self, num_games: int, *, device: torch.device, **kwargs: Any) -> None:
        self.clock = torch.zeros(num_games, dtype=torch.int64, device=device)

    def reset(self, games: torch.Tensor, *, key: torch.Tensor) -> None:
        self.clock = self.clock.masked_fill(games, 0)

    def decisions(self) -> Sequence[Group]:
        seen = torch.stack((self.clock.float(), torch.ones_like(self.clock).float()), dim=1)
        mask = torch.ones(len(self.clock), 1, 2, dtype=torch.bool)
        mask[:, 0, 1] = self.clock > 1
        return (Group((self.clock % 2)[:, None], seen[:, None], mask),)

    def step(self, actions: Sequence[torch.Tensor]) -> StepResult:
        won = actions[0][:, 0] == 1
        mover = self.clock % 2
        self.clock = self.clock + 1
        gain = won.float() * (1.0 - 2.0 * mover.float())
        over = won | (self.clock == 4)
        return StepResult(
            reward=torch.stack((gain, -gain), dim=1), terminated=over[:, None].expand(-1, 2)
        )
