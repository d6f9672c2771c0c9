"""Shares of a learner's time by stage, measured by timers around its calls.

Timers cost time themselves, so shares come from a pass of their own and rates from one without.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps

from arena.core import Algorithm
from arena.envs.base import BatchedEnv
from arena.networks.frozen import FrozenPolicy
from arena.networks.stack import PolicyStack
from arena.rollout.buffer import RolloutBuffer

from .measure import Clock, Work, timed

OTHER = "other"
STAGES = ("environment", "inference", "opponents", "storing", "advantages", "update", OTHER)


Timed = tuple[str, type, str]
"""A method whose time belongs to a stage: the stage, the class and the method's name."""


class Stopwatch:
    """Seconds of each stage; time in a stage within another is the inner one's."""

    def __init__(self, clock: Clock = time.perf_counter) -> None:
        self._clock = clock
        # The innermost stage is last.
        self._stages = [OTHER]
        self._since = clock()
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a block as a stage; the stage that it interrupts goes on afterwards."""
        self._account()
        self._stages.append(name)
        try:
            yield
        finally:
            # The elapsed time belongs to the stage that ends, so it is added before the pop.
            self._account()
            self._stages.pop()

    def start(self) -> None:
        """Forget what was before."""
        self.seconds.clear()
        # Stages that are open stay open.
        self._since = self._clock()

    def shares(self) -> dict[str, float]:
        """Return each stage's share of the time so far; they sum to 1."""
        self._account()
        total = sum(self.seconds.values())
        return {stage: self.seconds[stage] / total for stage in STAGES if self.seconds[stage] > 0.0}

    def _account(self) -> None:
        now = self._clock()
        # Every instant belongs to exactly one stage, so that shares add up to 1.
        self.seconds[self._stages[-1]] += now - self._since
        self._since = now


@contextmanager
def timed_calls(stopwatch: Stopwatch, methods: Sequence[Timed]) -> Iterator[None]:
    """Time all calls of some methods, on whatever object, until the block ends."""
    # The exit stack restores in reverse order, so a method that is timed twice ends as it was.
    with ExitStack() as stack:
        for stage, owner, method in methods:
            # An inherited method is deleted again; setting it would leave a copy in the subclass.
            inherited = method not in vars(owner)
            original = getattr(owner, method)
            setattr(owner, method, _timing(original, stopwatch, stage))
            if inherited:
                stack.callback(delattr, owner, method)
            else:
                stack.callback(setattr, owner, method, original)
        yield


def _timing(
    function: Callable[..., object], stopwatch: Stopwatch, stage: str
) -> Callable[..., object]:
    @wraps(function)
    def call(*arguments: object, **options: object) -> object:
        with stopwatch.stage(stage):
            return function(*arguments, **options)

    return call


def learner_methods(env: BatchedEnv, algorithm: Algorithm) -> list[Timed]:
    """Return the methods that a learner spends its time in."""
    return [
        ("environment", type(env), "step"),
        ("inference", type(algorithm), "act"),
        ("inference", type(algorithm), "value"),
        ("opponents", FrozenPolicy, "act"),
        ("opponents", PolicyStack, "act"),
        ("storing", RolloutBuffer, "store"),
        ("storing", RolloutBuffer, "store_result"),
        ("advantages", RolloutBuffer, "finish"),
        ("update", type(algorithm), "update"),
    ]


def stage_shares(
    work: Work,
    *,
    methods: Sequence[Timed],
    seconds: float,
    clock: Clock = time.perf_counter,
) -> dict[str, float]:
    """Repeat a work for at least so long, at least once, and say where the time went."""
    stopwatch = Stopwatch(clock)
    with timed_calls(stopwatch, methods):
        # The clock starts after the patching, which is not part of any stage.
        stopwatch.start()
        timed(work, seconds=seconds, clock=clock)
        return stopwatch.shares()
