"""Sinks that raise: told, left alone for a while, tried again, never the end of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from populations.controller.monitoring.sinks import Sinks
from populations.hooks.findings import Finding


@dataclass
class Fussy:
    """Raises what it is told to, at making or at each call of one kind."""

    raises: BaseException | None = None
    on: str = "write"
    written: list[tuple[str, int]] = field(default_factory=list)
    num_calls: int = 0

    def make(self) -> Fussy:
        self._do("make")
        return self

    def write(self, policy: str, agent_steps: int, metrics: Mapping[str, float]) -> None:
        self._do("write")
        self.written.append((policy, agent_steps))

    def flush(self) -> None:
        self._do("flush")

    def close(self) -> None:
        self._do("close")

    def _do(self, what: str) -> None:
        self.num_calls += what == self.on
        if what == self.on and self.raises is not None:
            raise self.raises


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def reported(what: str) -> Finding:
    return Finding("sink_failed", "mine:Fussy", "mine:Fussy", what)


@pytest.mark.parametrize(
    "error",
    [OSError(28, "no room"), ValueError("not finite"), SystemExit(3), RecursionError("deep")],
)
def test_one_that_raises_is_left_alone_and_the_others_go_on(error: BaseException) -> None:
    clock, fussy, calm = Clock(), Fussy(raises=error), Fussy()
    sinks = Sinks({"mine:Fussy": fussy.make, "jsonl": calm.make}, clock=clock)
    for step in range(5):
        sinks.write("player/p000", step, {"a/b": 1.0})
        sinks.flush()
    assert [step for _, step in calm.written] == [0, 1, 2, 3, 4]
    (told,) = sinks.told()
    assert told == reported(f"mine:Fussy raised {type(error).__name__}: {error}")
    assert sinks.told() == []


def test_it_is_tried_again_after_ever_longer_waits_of_at_most_a_minute() -> None:
    clock, fussy = Clock(), Fussy(raises=OSError("gone"))
    sinks = Sinks({"mine:Fussy": fussy.make}, clock=clock)
    tries = []
    for _ in range(4000):
        before = fussy.num_calls
        sinks.write("player/p000", 1, {})
        if fussy.num_calls > before:
            tries.append(clock.now_s)
        clock.now_s += 0.1
    waits = [round(second - first) for first, second in pairwise(tries)]
    assert waits[:8] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert len(sinks.told()) == len(tries)
    fussy.raises = None
    clock.now_s += 60.0
    sinks.write("player/p000", 2, {})
    assert sinks.told() == [reported("")]
    sinks.write("player/p000", 3, {})
    assert [step for _, step in fussy.written] == [2, 3]
    assert sinks.told() == [], "it is told once"
    fussy.raises = OSError("again")
    sinks.write("player/p000", 4, {})
    clock.now_s += 1.01
    fussy.raises = None
    sinks.write("player/p000", 5, {})
    assert [step for _, step in fussy.written] == [2, 3, 5], "it waits for a second again"


def test_one_that_cannot_be_made_is_made_later() -> None:
    clock, fussy = Clock(), Fussy(raises=ImportError("no such package"), on="make")
    sinks = Sinks({"mine:Fussy": fussy.make}, clock=clock)
    assert sinks.told() == [reported("mine:Fussy raised ImportError: no such package")]
    sinks.write("player/p000", 1, {})
    clock.now_s += 1.0
    fussy.raises = None
    sinks.flush()
    assert sinks.told() == [], "nothing is written yet"
    sinks.write("player/p000", 2, {})
    assert sinks.told() == [reported("")]
    assert [step for _, step in fussy.written] == [2]


@pytest.mark.parametrize("on", ["flush", "close"])
def test_what_it_raises_elsewhere_ends_nothing_either(on: str) -> None:
    fussy = Fussy(raises=RuntimeError("x" * 1000), on=on)
    sinks = Sinks({"mine:Fussy": fussy.make})
    sinks.write("player/p000", 1, {})
    sinks.flush()
    sinks.close()
    assert fussy.num_calls == 1
    (told,) = sinks.told()
    assert len(told.what) == len("mine:Fussy raised ") + 300


def test_what_one_does_to_its_figures_is_not_seen_by_the_next() -> None:
    class Greedy(Fussy):
        def write(self, policy: str, agent_steps: int, metrics: Mapping[str, float]) -> None:
            assert isinstance(metrics, dict)
            seen.append(dict(metrics))
            metrics.clear()

    seen: list[dict[str, float]] = []
    sinks = Sinks({"a": Greedy().make, "b": Greedy().make})
    metrics = {"a/b": 1.0}
    sinks.write("player/p000", 1, metrics)
    assert seen == [metrics, metrics] == [{"a/b": 1.0}] * 2
