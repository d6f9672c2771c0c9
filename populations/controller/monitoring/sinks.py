"""Sinks of a run, whose errors are reported and do not stop the run.

A sink may be a user's own and raise any exception, also when it is made. It is then not called for
a second, after the next failure for two, and so on, up to a minute; it misses the points of this
time. Sinks run in the controller's thread, so learners wait while one of them works.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from msgspec import Struct

from arena.metrics.sink import Sink
from arena.users_code import guarded, split_lines
from populations.hooks.findings import Finding

logger = logging.getLogger(__name__)

WAIT_S, LONGEST_WAIT_S = 1.0, 60.0

MAX_CHARS = 300
"""Limit of the characters shown of a sink's error; the log has all of it."""


class _Guarded(Struct):
    """Sink with the state of its failures.

    Attributes:
        name: Name in ``metrics.sinks``.
        make: Function that makes it.
        sink: The sink; None until it has been made.
        wait_s: Seconds for which it is not called after the next failure.
        retry_at_s: Time before which it is not called.
        is_failing: Whether nothing was written successfully since its last failure.
    """

    name: str
    make: Callable[[], Sink]
    sink: Sink | None = None
    wait_s: float = WAIT_S
    retry_at_s: float = float("-inf")
    is_failing: bool = False


class Sinks:
    """Sinks of a run, and which of them failed. Owned by one thread.

    Args:
        makers: Function that makes each sink, by its name.
        clock: Monotonic clock, in seconds.
    """

    def __init__(
        self,
        makers: Mapping[str, Callable[[], Sink]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._sinks = [_Guarded(name=name, make=make) for name, make in makers.items()]
        self._told: list[Finding] = []
        for one in self._sinks:
            # Sinks are made at the start, so that a wrong setting is reported before anything is
            # trained.
            self._try(one, lambda sink: None)

    def write(self, policy: str, agent_steps: int, metrics: Mapping[str, float]) -> None:
        """Write points of curves to every sink; see `arena.metrics.sink.Sink.write`."""
        for one in self._sinks:
            # Each sink gets a copy, because a user's own sink may change the mapping.
            done = self._try(one, lambda sink: sink.write(policy, agent_steps, dict(metrics)))
            if done and one.is_failing:
                one.is_failing, one.wait_s = False, WAIT_S
                self._report(one, "")
                logger.warning("sink %s works again", one.name)

    def flush(self) -> None:
        """Flush every sink."""
        for one in self._sinks:
            self._try(one, lambda sink: sink.flush())

    def close(self) -> None:
        """Close every sink that was made; its errors are logged."""
        for one in self._sinks:
            if one.sink is not None:
                # A failing sink is closed, too, without waiting for its next try.
                one.retry_at_s = float("-inf")
                self._try(one, lambda sink: sink.close())

    def told(self) -> list[Finding]:
        """Return findings about sinks that failed or recovered since the last call."""
        told, self._told = self._told, []
        return told

    def _try(self, one: _Guarded, call: Callable[[Sink], None]) -> bool:
        """Call a sink unless it waits after a failure; return whether the call succeeded."""
        now_s = self._clock()
        if now_s < one.retry_at_s:
            return False

        def attempt() -> bool:
            if one.sink is None:
                one.sink = one.make()
            call(one.sink)
            return True

        def leave(problem: str) -> bool:
            one.is_failing = True
            one.retry_at_s = now_s + one.wait_s
            one.wait_s = min(2.0 * one.wait_s, LONGEST_WAIT_S)
            self._report(one, f"raised {split_lines(problem)[0][:MAX_CHARS]}")
            return False

        what = f"writing metrics to sink {one.name}"
        return guarded(attempt, leave, what=what)

    def _report(self, one: _Guarded, problem: str) -> None:
        name = one.name
        what = f"{name} {problem}" if problem else ""
        self._told.append(Finding("sink_failed", name, name, what))
