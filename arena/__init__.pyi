# Types of the names that `arena` resolves lazily. `tests/tools/api/test_public_names.py` compares
# them with what is there.

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch

from arena.errors import ArenaError as ArenaError
from arena.errors import ConfigError as ConfigError
from arena.errors import NoValue as NoValue
from populations.errors import RunFailed as RunFailed

__all__ = [
    "ArenaError",
    "ConfigError",
    "LaunchedRun",
    "NoValue",
    "Player",
    "Records",
    "Run",
    "RunFailed",
    "evaluate",
    "launch",
    "load",
    "open",
]

__version__: str

class Records(list[dict[str, Any]]):
    def to_pandas(self) -> Any: ...  # noqa: ANN401  (pandas need not be installed)

class Run:
    run_dir: Path
    def __init__(self, run_dir: str | os.PathLike[str]) -> None: ...
    def status(self) -> dict[str, Any]: ...
    def standings(self, *, population: str | None = None) -> Records: ...
    def payoff(self, *, population: str | None = None, by_seats: bool = False) -> Records: ...
    def events(
        self,
        *,
        kind: str | Sequence[str] | None = None,
        player: str | None = None,
        population: str | None = None,
    ) -> Records: ...
    def hyperparameters(self, *, population: str | None = None) -> Records: ...
    def ratings_over_time(self, *, population: str | None = None) -> Records: ...
    def champions(self, *, population: str | None = None) -> Records: ...
    def learners(self) -> Records: ...
    def why(self, player: str) -> Records: ...
    def diff(
        self, other: str | os.PathLike[str] | Run, *, population: str | None = None
    ) -> Records: ...
    def records(
        self, view: str, *, population: str | None = None, **options: object
    ) -> Records: ...

class LaunchedRun(Run):
    @property
    def pid(self) -> int: ...
    @property
    def output(self) -> list[str]: ...
    @property
    def is_running(self) -> bool: ...
    def wait(self, timeout_s: float | None = None) -> None: ...
    def stop(self, timeout_s: float = 120.0) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...

class Player:
    name: str
    @property
    def agents(self) -> tuple[str, ...]: ...
    def act(
        self,
        observation: object,
        action_mask: object = None,
        *,
        agent: str | None = None,
        sample: bool = False,
        seed: int | None = None,
    ) -> Any: ...  # noqa: ANN401  (whatever the environment takes)
    def probabilities(
        self, observation: object, action_mask: object = None, *, agent: str | None = None
    ) -> npt.NDArray[np.float64]: ...
    def value(
        self, observation: object, *, agent: str | None = None
    ) -> float | npt.NDArray[np.float32]: ...
    def reset(self, *, seed: int | None = None) -> None: ...
    def module(self, *, agent: str | None = None) -> torch.nn.Module: ...

def launch(
    config: str | os.PathLike[str] | Mapping[str, object] | None = None,
    *,
    run_dir: str | os.PathLike[str] | None = None,
    overrides: Mapping[str, object] | Sequence[str] = (),
    learners: int | None = None,
    resume: bool = False,
    force: bool = False,
    init_from: str | Sequence[str] | Mapping[str, str] = (),
    with_hyperparameters: bool = False,
    replay: str | None = None,
    accept_loss: bool = False,
    trust: bool = False,
    wait: bool = True,
) -> LaunchedRun: ...
def open(run_dir: str | os.PathLike[str]) -> Run: ...
def load(
    player: str | os.PathLike[str],
    *,
    environment: str | None = None,
    seed: int | None = None,
    trust: bool = False,
) -> Player: ...
def evaluate(
    players: Sequence[str],
    *,
    matches: int = 100,
    greedy: bool = False,
    seed: int = 1,
    environment: str | None = None,
    trust: bool = False,
) -> dict[str, Any]: ...
