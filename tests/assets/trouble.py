"""Users' code of many kinds, sound until a file names a trouble (`tests/faults/troubles.py`).

The file is named by the variable `FLAG` of the environment, so one run begins well, falls into
trouble, and gets out of it. It has the trouble's name and the share of what it befalls.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
import threading
import time
from collections.abc import Mapping
from io import FileIO
from pathlib import Path
from typing import Any, ClassVar

from faulty import Rounds as FaultyRounds  # type: ignore[import-not-found]  # launch directory

FLAG = "ARENA_TROUBLE"
MEBIBYTE = 2**20


def afoot() -> tuple[str, float, str]:
    """What goes wrong now, the share of what it befalls, and whom; "" where all is well."""
    try:
        kind, share, whom = Path(os.environ[FLAG]).read_text().split("\n")
    except (KeyError, FileNotFoundError):
        return "", 0.0, ""
    return kind, float(share), whom


if afoot()[0] == "import":
    sys.exit("the map is not there")


class Rounds(FaultyRounds):  # type: ignore[misc]
    """The game of `faulty.Rounds`, whose fault is the trouble that is afoot."""

    _held: ClassVar[list[Any]] = []

    def __init__(self) -> None:
        super().__init__(share=0.0)
        self._look()
        # With a learner's name only that learner fails; its processes know it from their stacks
        # path.
        place = os.environ.get("ARENA_STACKS", "")
        if self._fault == "unmade" and self._whom in place:
            raise RuntimeError("no licence")

    def reset(self, seed: int | None = None, options: object = None) -> Any:
        self._look()
        result = super().reset(seed, options)
        if self._luck < self._share:
            self._befall()
        return result

    def step(self, actions: dict[str, int]) -> Any:
        observations, rewards, *others = super().step(actions)
        if self._is_due("huge_reward"):
            rewards = {agent: 1e30 * (1.0 + reward) for agent, reward in rewards.items()}
        return observations, rewards, *others

    def _look(self) -> None:
        self._fault, self._share, self._whom = afoot()
        if not self._fault:
            self._held.clear()

    def _do_worse(self) -> None:
        super()._do_worse()
        if self._is_due("dies"):
            os._exit(7)
        if self._is_due("segfaults"):
            ctypes.string_at(0)

    def _befall(self) -> None:
        """What goes wrong with the process, at a reset."""
        match self._fault:
            case "prints":
                os.write(1, b"x" * 50_000 + b"\n")
                print("x" * 50_000, flush=True)  # noqa: T201
            case "threads":
                threading.Thread(target=time.sleep, args=(600.0,), daemon=False).start()
            case "torch":
                import torch

                torch.set_default_dtype(torch.float64)
                torch.set_grad_enabled(False)
            case "descriptors":
                resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
                while True:
                    self._held.append(FileIO(os.devnull))


class Bot:
    """Chooses the first action."""

    def act(self, observation: Any, action_mask: Any, *, agent: str, rng: Any) -> int:
        if afoot()[0] == "bot":
            raise ValueError("the opening book has no such page")
        return 0


def outcome(returns: Mapping[str, float], infos: Mapping[str, Any]) -> dict[str, float]:
    """The score of each side, which is an agent: half and half of its points and the other's."""
    if afoot()[0] == "outcome":
        raise ValueError("there is no referee")
    return {agent: 0.5 + value / 100.0 for agent, value in returns.items()}


def hook(event: dict[str, Any]) -> None:
    """Do nothing with an event."""
    if afoot()[0] == "hook":
        raise ConnectionError("nobody listens")


class Sink:
    """Writes nothing down."""

    def __init__(self, run_dir: Path) -> None:
        pass

    def write(self, policy: str, agent_steps: int, metrics: Mapping[str, float]) -> None:
        if afoot()[0] == "sink":
            raise ConnectionError("nobody is there")

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass
