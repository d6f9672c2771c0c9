"""The rounds of `faulty.py`, in an environment that changes what belongs to the whole process.

Found by id, ``changing:Changing``, with this directory as the launch directory.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from faulty import Rounds  # type: ignore[import-not-found]

CHANGES: Mapping[str, Callable[[], object]] = {
    "dtype": lambda: torch.set_default_dtype(torch.float64),
    "gradients": lambda: torch.set_grad_enabled(False),
    "threads": lambda: torch.set_num_threads(3),
    "deterministic": lambda: torch.use_deterministic_algorithms(True),
    "anomaly": lambda: torch.set_anomaly_enabled(True),
    "device": lambda: torch.set_default_device("meta"),
    "numpy": lambda: np.seterr(all="raise"),
    "warnings": lambda: warnings.simplefilter("error"),
    "umask": lambda: os.umask(0o777),
    "collector": gc.disable,
    "recursion": lambda: sys.setrecursionlimit(len(_frames()) + 80),
    "modules": lambda: [sys.modules.pop(name, None) for name in ("torch.utils", "json")],
    "random": lambda: (random.seed(0), np.random.seed(0), torch.manual_seed(0)),
    "signals": lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN),
    "mask": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM}),
    "directory": lambda: os.chdir("/"),
}


def _frames() -> list[object]:
    frame, found = sys._getframe(), []
    while frame is not None:
        found.append(frame)
        frame = frame.f_back  # type: ignore[assignment]
    return found


class Changing(Rounds):  # type: ignore[misc]
    """The rounds; ``what`` is changed when it is made, or at each reset or step."""

    def __init__(self, *, what: str = "", when: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._what, self._when = what, when
        self._change("making")

    def reset(self, seed: int | None = None, options: object = None) -> Any:
        self._change("reset")
        return super().reset(seed, options)

    def step(self, actions: dict[str, int]) -> Any:
        self._change("step")
        return super().step(actions)

    def _change(self, when: str) -> None:
        if when == self._when:
            CHANGES[self._what]()
