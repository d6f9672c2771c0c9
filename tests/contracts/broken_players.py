"""Bots, encoders, batched games and sinks with one mistake each, as users make them."""

from __future__ import annotations

import csv
import json
import struct
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from arena.environment_spec import AgentSpec
from arena.envs.batched.game import StepResult
from arena.envs.batched.tictactoe import TicTacToe
from arena.envs.chance import uniforms
from tests.assets.batched_games import HARE, TakesTurns
from tests.assets.sinks import Kept


class FirstLegal:
    """Right: the first legal action."""

    def act(self, observation: Any, action_mask: Any, *, agent: str, rng: Any) -> Any:
        return action_mask.argmax(axis=1)


class IgnoresTheMask:
    def act(self, observation: Any, action_mask: Any, *, agent: str, rng: Any) -> Any:
        return np.full(len(action_mask), 4)


class FillsInOrder:
    """Legal against itself alone: nobody else takes the squares in order."""

    def act(self, observation: Any, action_mask: Any, *, agent: str, rng: Any) -> Any:
        return (~np.asarray(action_mask, dtype=bool)).sum(axis=1)


class OneForAll:
    def act(self, observation: Any, action_mask: Any, *, agent: str, rng: Any) -> Any:
        return int(action_mask[0].argmax())


class LooksAtOneGame:
    def act(self, observation: Any, action_mask: Any, *, agent: str, rng: Any) -> Any:
        legal = np.flatnonzero(action_mask[0])
        return rng.choice(legal, size=len(action_mask))


class DrawsFromNumpy:
    def act(self, observation: Any, action_mask: Any, *, agent: str, rng: Any) -> Any:
        return np.array([np.random.choice(np.flatnonzero(row)) for row in action_mask])


class DrawsUnseeded:
    def __init__(self) -> None:
        self.rng = np.random.default_rng()

    def act(self, observation: Any, action_mask: Any, *, agent: str, rng: Any) -> Any:
        return np.array([self.rng.choice(np.flatnonzero(row)) for row in action_mask])


class CountsItsMoves:
    def __init__(self) -> None:
        self.calls = 0

    def act(self, observation: Any, action_mask: Any, *, agent: str, rng: Any) -> Any:
        self.calls += 1
        last = action_mask.shape[1] - 1 - action_mask[:, ::-1].argmax(axis=1)
        return action_mask.argmax(axis=1) if self.calls < 20 else last


class MarksTheBoard:
    def act(self, observation: Any, action_mask: Any, *, agent: str, rng: Any) -> Any:
        observation["observation"][:, 0, 0, 0] = 1
        return action_mask.argmax(axis=1)


class TakesTheObservationAlone:
    def act(self, observation: Any) -> Any:
        return observation["action_mask"].argmax(axis=1)


class NeedsADepth(FirstLegal):
    def __init__(self, depth: int) -> None:
        self.depth = depth


BOTS = {
    IgnoresTheMask: "act must give one legal action for each row",
    FillsInOrder: "act must give one legal action for each row",
    OneForAll: "act must give one legal action for each row",
    LooksAtOneGame: "act must give one legal action for each row",
    DrawsFromNumpy: "act must draw from rng alone",
    DrawsUnseeded: "a bot's decisions must be a function of its calls",
    CountsItsMoves: "a bot must begin every game anew",
    MarksTheBoard: "act must not change its observations and action masks",
    TakesTheObservationAlone: "its methods must take the arguments of arena.bots.asking.Bot",
    NeedsADepth: "it must be made with the arguments of its id",
}


class OneLayer(nn.Module):
    """Right: a layer and a nonlinearity."""

    num_features = 6

    def __init__(self, observation: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(observation.size, 6)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.layer(rows))


class DropsOut(OneLayer):
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(super().forward(rows), 0.5, training=self.training)


class CentersTheBatch(OneLayer):
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        features = super().forward(rows)
        return features - features.mean(dim=0)


class ScalesInPlace(OneLayer):
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return super().forward(rows.sub_(0.5))


class HasAnUnusedLayer(OneLayer):
    def __init__(self, observation: Any) -> None:
        super().__init__(observation)
        self.old_layer = nn.Linear(observation.size, 6)


class DetachesItself(OneLayer):
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.tanh(torch.from_numpy(self.layer(rows).detach().numpy()))


class KeepsItsProjection(OneLayer):
    """A tensor that is no buffer is in no checkpoint."""

    def __init__(self, observation: Any) -> None:
        super().__init__(observation)
        self.projection = torch.randn(6, 6)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return super().forward(rows) @ self.projection


class SaysAnotherWidth(OneLayer):
    num_features = 8


class DrawsByNumpy(OneLayer):
    def __init__(self, observation: Any) -> None:
        super().__init__(observation)
        drawn = np.random.default_rng().normal(size=(6, observation.size))
        self.layer.weight = nn.Parameter(torch.from_numpy(drawn).float())


class TakesTheLogarithm(OneLayer):
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return super().forward(rows).cumsum(1) + torch.log(rows.sum(dim=1, keepdim=True) * 0 - 1)


class NormalizesTheBatch(OneLayer):
    def __init__(self, observation: Any) -> None:
        super().__init__(observation)
        self.norm = nn.BatchNorm1d(6)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.norm(super().forward(rows))
        return features


class EncodesRowByRow(OneLayer):
    """Unrolled by the exporter for the number of rows that it sees."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.stack([torch.tanh(self.layer(row)) for row in rows])


ENCODERS = {
    EncodesRowByRow: "a policy with it must be exported to ONNX, for any number of rows",
    DropsOut: "equal rows must give equal features",
    CentersTheBatch: "the features of a row must not depend on the other rows",
    ScalesInPlace: "forward must not change its rows",
    HasAnUnusedLayer: "the gradient must reach every parameter",
    DetachesItself: "the gradient must reach every parameter",
    KeepsItsProjection: "state_dict must hold all that features depend on",
    SaysAnotherWidth: "it must be made with an ObservationLayout, and encode two rows",
    DrawsByNumpy: "weights must be a function of the seed",
    TakesTheLogarithm: "features must be finite",
    NormalizesTheBatch: "it must be made with an ObservationLayout, and encode two rows",
}


class EndsForAll(TakesTurns):
    def step(self, actions: Sequence[torch.Tensor]) -> StepResult:
        result = super().step(actions)
        result.terminated = result.terminated.any(dim=0).expand_as(result.terminated)
        return result


class ResetsAll(TakesTurns):
    def reset(self, games: torch.Tensor, *, key: torch.Tensor) -> None:
        super().reset(torch.ones_like(games), key=key)


class DealsByItself(TakesTurns):
    def reset(self, games: torch.Tensor, *, key: torch.Tensor) -> None:
        self.clock = torch.where(games, torch.randint(2, games.shape), self.clock)


class DealsFromOneDeck(TakesTurns):
    """A generator of its own, seeded when the games are made."""

    def __init__(self, num_games: int, **rest: Any) -> None:
        super().__init__(num_games, **rest)
        self.deck = torch.Generator().manual_seed(0)

    def reset(self, games: torch.Tensor, *, key: torch.Tensor) -> None:
        dealt = torch.randint(2, games.shape, generator=self.deck)
        self.clock = torch.where(games, dealt, self.clock)


class DealsByPlace(TakesTurns):
    """Chance of all games from the key of the first."""

    def reset(self, games: torch.Tensor, *, key: torch.Tensor) -> None:
        dealt = (uniforms(key[:1] + torch.arange(len(key)), draw=0) * 2).long()
        self.clock = torch.where(games, dealt, self.clock)


class PaysWholeNumbers(TakesTurns):
    def step(self, actions: Sequence[torch.Tensor]) -> StepResult:
        result = super().step(actions)
        result.reward = result.reward.long()
        return result


class NeverEnds(TakesTurns):
    def step(self, actions: Sequence[torch.Tensor]) -> StepResult:
        result = super().step(actions)
        self.clock = self.clock % 4
        result.terminated = torch.zeros_like(result.terminated)
        return result


class AllowsNothing(TakesTurns):
    def decisions(self) -> Any:
        (group,) = super().decisions()
        assert group.action_mask is not None
        group.action_mask[self.clock == 3] = False
        return (group,)


class LeavesItsSpace(TakesTurns):
    agent_specs: ClassVar[Any] = dict.fromkeys(
        ("a_0", "b_0"),
        AgentSpec(
            observation={"kind": "Box", "shape": [2], "dtype": "float32", "low": 0.0, "high": 1.0},
            action=HARE.action,
            mask="observation",
        ),
    )


class ForgetsAnAgent(TakesTurns):
    groups = (("a_0",),)  # type: ignore[assignment]


class TakesNoDevice(TakesTurns):
    def __init__(self, num_games: int) -> None:
        super().__init__(num_games, device=torch.device("cpu"))


GAMES = {
    EndsForAll: "a game must not depend on the other games of its batch",
    ResetsAll: "a game must not depend on the other games of its batch",
    DealsByItself: "chance must be a function of the episode's key",
    DealsFromOneDeck: "reset must leave nothing of the games before",
    DealsByPlace: "a game must not depend on the other games of its batch",
    PaysWholeNumbers: "reward must be float32 [games, agents]",
    NeverEnds: "a game must end within 30 calls",
    AllowsNothing: "step must take legal actions and keep the form of StepResult",
    LeavesItsSpace: "observations of a_0 must be within their space",
    ForgetsAnAgent: "groups must have every agent once",
    TakesNoDevice: "the environment tests.contracts.broken_players:TakesNoDevice must be there",
}


class KnowsNoDiagonals(TicTacToe):
    """Another game than PettingZoo's: the diagonals do not win."""

    def __init__(self, num_games: int, **rest: Any) -> None:
        super().__init__(num_games, **rest)
        lines = torch.tensor([7, 56, 448, 73, 146, 292])
        sets = torch.arange(512)
        self._wins = ((sets[:, None] & lines) == lines).any(dim=1)


class BeginsAgain(Kept):
    def __init__(self, run_dir: Path) -> None:
        super().__init__(run_dir)
        self._path.write_text("")


class NeedsANewDirectory(Kept):
    def __init__(self, run_dir: Path) -> None:
        super().__init__(run_dir)
        (run_dir / "kept").mkdir()


class HasFixedColumns(Kept):
    columns: tuple[str, ...] = ()

    def write(self, policy: str, agent_steps: int, metrics: Any) -> None:
        self.columns = self.columns or tuple(metrics)
        with self._path.open("a", encoding="utf-8") as file:
            csv.DictWriter(file, self.columns).writerow(dict(metrics))


class TakesOut(Kept):
    def write(self, policy: str, agent_steps: int, metrics: Any) -> None:
        metrics.pop("loss/policy", None)
        super().write(policy, agent_steps, metrics)


class RefusesThePast(Kept):
    last = 0

    def write(self, policy: str, agent_steps: int, metrics: Any) -> None:
        if agent_steps < self.last:
            raise ValueError(f"step {agent_steps} is before {self.last}")
        self.last = agent_steps if policy == "player/p000" else self.last
        super().write(policy, agent_steps, metrics)


class LeavesItOpen(Kept):
    def __init__(self, run_dir: Path) -> None:
        super().__init__(run_dir)
        self.file = self._path.open("a", encoding="utf-8")

    def close(self) -> None:
        self.file.flush()

    def __del__(self) -> None:
        # Tests treat a file that stays open as a fault.
        self.file.close()


class LeavesAThread(Kept):
    def __init__(self, run_dir: Path) -> None:
        super().__init__(run_dir)
        # The thread ends by itself, so that it does not outlive the test by much.
        threading.Thread(target=threading.Event().wait, args=(0.5,), daemon=True).start()


class PacksSingles(Kept):
    def write(self, policy: str, agent_steps: int, metrics: Any) -> None:
        for value in metrics.values():
            struct.pack("<f", value)
        super().write(policy, agent_steps, metrics)


class KnowsPoliciesAlone(Kept):
    def write(self, policy: str, agent_steps: int, metrics: Any) -> None:
        _, name = policy.split("/")
        super().write(name, agent_steps, metrics)


class OpensLate(Kept):
    file: Any = None

    def write(self, policy: str, agent_steps: int, metrics: Any) -> None:
        self.file = self.file or self._path.open("a", encoding="utf-8")
        self.file.write(json.dumps(dict(metrics)))

    def flush(self) -> None:
        self.file.flush()


class NeedsAProject(Kept):
    def __init__(self, run_dir: Path, project: str) -> None:
        super().__init__(run_dir)


SINKS = {
    BeginsAgain: "a resume must keep what an earlier process has written",
    NeedsANewDirectory: "it must be made again in the same directory by a resume",
    HasFixedColumns: "write must take the points of a run",
    TakesOut: "write must not change metrics",
    RefusesThePast: "write must take a step before the last one",
    LeavesItOpen: "close must close every file",
    LeavesAThread: "close must end every thread",
    PacksSingles: "write must take very large, very small and whole numbers",
    KnowsPoliciesAlone: "write must take the points of a run",
    OpensLate: "flush must do nothing before the first point",
    NeedsAProject: "it must be made with the run's directory",
}
