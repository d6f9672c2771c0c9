"""An environment that logs at which step of which episode each decision was taken, and when.

Found by id: ``tests.assets.logged:make`` with ``kwargs: {environment: ..., log: DIRECTORY, ...}``.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from pettingzoo.utils import BaseParallelWrapper, BaseWrapper

LOGS: list[Log] = []
"""All logs of this process."""


class Log:
    """Times of the decisions of one environment, episode by episode."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._times = array("d")
        self._lengths = array("q")
        self._ended = array("q")
        self._length = 0
        self._is_over = False
        self._role = ""
        LOGS.append(self)

    def begin(self) -> None:
        """A reset: what was played before is one episode."""
        if not self._times:
            # Matches are played by other code than training, on environments of their own.
            names = callers()
            self._role = next((name for name in ("collector", "match") if name in names), "")
        self._finish()

    def step(self, *, over: bool) -> None:
        """A step, and whether the episode is over with it."""
        self._times.append(time.time())
        self._length += 1
        self._is_over = over

    def close(self) -> None:
        """Write all logs of the process, once: a learner that is told to stop has little time."""
        path = self._directory / f"{os.getpid()}-{len(LOGS)}.log"
        with path.open("ab") as file:
            for log in LOGS:
                log.write(file)
        LOGS.clear()

    def write(self, file: BinaryIO) -> None:
        """Write the columns: is it training, number of episodes, lengths, ends, times."""
        self._finish()
        if self._lengths and self._role:
            header = array("q", [self._role == "collector", len(self._lengths)])
            for column in (header, self._lengths, self._ended, self._times):
                file.write(column.tobytes())

    def _finish(self) -> None:
        if self._length:
            self._lengths.append(self._length)
            self._ended.append(self._is_over)
        self._length, self._is_over = 0, False


def callers() -> list[str]:
    """Files of the functions that led here."""
    frame, names = sys._getframe(1), []
    while frame.f_back is not None:
        names.append(Path(frame.f_code.co_filename).stem)
        frame = frame.f_back
    return names


class LoggedTurns(BaseWrapper):  # type: ignore[misc]
    """Logs an AEC environment."""

    def __init__(self, env: Any, *, log: Log) -> None:
        super().__init__(env)
        self._log = log

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self._log.begin()
        self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> None:
        self.env.step(action)
        if action is not None:
            env = self.env
            over = all(env.terminations[a] or env.truncations[a] for a in env.agents)
            self._log.step(over=over)

    def close(self) -> None:
        self._log.close()
        self.env.close()


class LoggedAtOnce(BaseParallelWrapper):  # type: ignore[misc]
    """Logs a Parallel environment."""

    def __init__(self, env: Any, *, log: Log) -> None:
        super().__init__(env)
        self._log = log

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._log.begin()
        return self.env.reset(seed=seed, options=options)

    def step(self, actions: Mapping[str, Any]) -> Any:
        result = self.env.step(actions)
        _, _, terminations, truncations, _ = result
        over = not self.env.agents or all(
            terminations.get(a, False) or truncations.get(a, False) for a in self.env.agents
        )
        self._log.step(over=over)
        return result

    def close(self) -> None:
        self._log.close()
        self.env.close()


def make(*, environment: str, log: str, **kwargs: Any) -> Any:
    """Make an environment that logs.

    Args:
        environment: ``package.module:function`` of a PettingZoo environment.
        log: Directory of its logs.
        kwargs: For the environment.
    """
    module, function = environment.split(":")
    env = getattr(importlib.import_module(module), function)(**kwargs)
    kind = LoggedTurns if hasattr(env, "agent_iter") else LoggedAtOnce
    return kind(env, log=Log(Path(log)))
