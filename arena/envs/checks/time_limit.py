"""Stages of work that end in time, whatever users' code does.

The interval timer of Linux and macOS interrupts the main thread between two Python instructions: it
ends an endless loop, but not a call into C that never returns.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from arena.users_code import Interrupt, place_of

AGAIN_S = 0.5
"""Seconds after which a stage that is still running is interrupted again."""


LEAST_S = 0.01


class OutOfTime(Interrupt):
    """Error: a stage has used up its time. Not an ``Exception``, so that users' handlers do not
    catch it.
    """


class TimeLimit:
    """Time limit of several stages together.

    Args:
        limit_s: Limit of all stages. None: no limit. Outside the main thread there is none either.
        tell: Callback that gets the name of each stage that begins.
        clock: Clock in seconds.

    Attributes:
        cut_off: Stages that ran out of time, with time and place.
    """

    def __init__(
        self,
        limit_s: float | None = None,
        *,
        tell: Callable[[str], None] = lambda what: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit_s = limit_s
        self._tell = tell
        self._clock = clock
        self._began_s = clock()
        self.cut_off: dict[str, str] = {}

    @property
    def left_s(self) -> float | None:
        """Seconds left; None: no limit."""
        if self._limit_s is None:
            return None
        return max(0.0, self._limit_s - (self._clock() - self._began_s))

    @contextmanager
    def stage(self, what: str, *, share: float = 1.0) -> Iterator[None]:
        """Run a stage until its time is up; the stage keeps what it has collected.

        Args:
            what: Name of the stage for people.
            share: Share of the remaining time.
        """
        self._tell(what)
        budget_s = None if self.left_s is None else self.left_s * share
        # Python allows signal handlers only in the main thread.
        if budget_s is None or threading.current_thread() is not threading.main_thread():
            yield
            return
        # A timer of zero would be disarmed instead.
        budget_s = max(budget_s, LEAST_S)
        armed = False

        def ring(number: int, frame: FrameType | None) -> None:
            # A late alarm must not raise in the code after the stage.
            if armed:
                place = place_of(frame)
                self.cut_off[what] = f"after {budget_s:.0f} s{place and f', in {place}'}"
                raise OutOfTime(what)

        # The handler is set before the timer, whose signal would otherwise end the process.
        before = signal.signal(signal.SIGALRM, ring)
        # The signal is repeated, because users' code may swallow the first one in a bare except.
        others_s, others_again_s = signal.setitimer(signal.ITIMER_REAL, budget_s, AGAIN_S)
        began_s = time.monotonic()
        try:
            armed = True
            yield
        except OutOfTime:
            # `ring` has recorded the stage in `cut_off`, and its findings so far are kept.
            return
        finally:
            armed = False
            # The timer is disarmed before the old handler is restored.
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, before)
            if others_s:
                # The previous timer is restored with at least a little time left, because zero
                # would disarm it.
                rest_s = max(others_s - (time.monotonic() - began_s), 1e-3)
                signal.setitimer(signal.ITIMER_REAL, rest_s, others_again_s)
