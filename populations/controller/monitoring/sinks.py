"""The sinks of a run: what one of them raises is told, and ends nothing.

A sink may be a user's own and raise anything, at its making too. It is left alone then for a
second, at the next failure for two, and so on, up to a minute; what was to be written meanwhile is
lost to it. Sinks run in the controller's thread: learners wait while one of them works.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from arena.metrics.sink import Sink
from arena.users_code import named, pass_interrupt
from populations.controller.state.events import SinkTold

logger = logging.getLogger(__name__)

WAIT_S, LONGEST_WAIT_S = 1.0, 60.0

MAX_CHARS = 300
"""Most characters shown of a sink's error; all of it is in the log."""


@dataclass(slots=True)
class _Guarded:
    """One sink.

    Attributes:
        name: Name in ``metrics.sinks``.
        make: Function that makes it.
        sink: The sink; None until it has been made.
        wait_s: Time for which it is left alone after the next failure.
        retry_at_s: Time before which it is left alone.
        is_failing: Whether nothing could be written since it last raised.
    """

    name: str
    make: Callable[[], Sink]
    sink: Sink | None = None
    wait_s: float = WAIT_S
    retry_at_s: float = float("-inf")
    is_failing: bool = False


class Sinks:
    """All sinks of a run, and which of them failed. Owned by one thread.

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
        self._told: list[SinkTold] = []
        for guarded in self._sinks:
            # Made at the start, so that a wrong setting is told before anything is trained.
            self._try(guarded, lambda sink: None)

    def write(self, policy: str, agent_steps: int, metrics: Mapping[str, float]) -> None:
        """Hand points of curves to every sink; see `arena.metrics.sink.Sink.write`."""
        for guarded in self._sinks:
            # A copy for each: a user's own sink may change what it is given.
            done = self._try(guarded, lambda sink: sink.write(policy, agent_steps, dict(metrics)))
            if done and guarded.is_failing:
                guarded.is_failing, guarded.wait_s = False, WAIT_S
                self._told.append(SinkTold(sink=guarded.name, problem=""))
                logger.warning("sink %s works again", guarded.name)

    def flush(self) -> None:
        """Let every sink hand on what was written."""
        for guarded in self._sinks:
            self._try(guarded, lambda sink: sink.flush())

    def close(self) -> None:
        """Close every sink that was made; what it raises is in the log."""
        for guarded in self._sinks:
            if guarded.sink is not None:
                # A sink that is left alone for now is closed all the same.
                guarded.retry_at_s = float("-inf")
                self._try(guarded, lambda sink: sink.close())

    def told(self) -> list[SinkTold]:
        """Return the sinks that failed or work again since the last call."""
        told, self._told = self._told, []
        return told

    def _try(self, guarded: _Guarded, call: Callable[[Sink], None]) -> bool:
        """Call a sink unless it is left alone; whether it did what it was told."""
        now_s = self._clock()
        if now_s < guarded.retry_at_s:
            return False
        try:
            if guarded.sink is None:
                guarded.sink = guarded.make()
            call(guarded.sink)
        except BaseException as error:
            # It may be a user's own and raise anything.
            pass_interrupt(error)
            logger.exception("metrics could not be written: sink %s", guarded.name)
            guarded.is_failing = True
            guarded.retry_at_s = now_s + guarded.wait_s
            guarded.wait_s = min(2.0 * guarded.wait_s, LONGEST_WAIT_S)
            problem = named(error)[:MAX_CHARS]
            self._told.append(SinkTold(sink=guarded.name, problem=problem))
            return False
        return True
