"""Sinks that raise: told, left alone for a while, tried again, never the end of a run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from arena.metrics.jsonl import JsonlSink
from populations.controller.monitoring.curves import (
    go_on,
    read_written,
)
from populations.controller.monitoring.sinks import Sinks
from populations.controller.state.events import Command, ControllerStarted, WriteMetrics
from populations.controller.state.state import make_state
from populations.hooks.findings import Finding
from populations.records.rows import AssignmentRow
from tests.populations.controller.monitoring.test_curves import (
    PLAYED,
    NotingWorld,
    Points,
    noting_world,
    trained_steps,
)
from tests.populations.controller.simulated import World, fold
from tests.support import Clock


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


@dataclass(slots=True)
class KilledWorld(NotingWorld):
    """A world that writes points into a file, unless the controller dies before it does."""

    path: Path = field(default_factory=Path)
    is_dying: bool = False
    lost: Points = field(default_factory=lambda: defaultdict(list))

    def carry_out(self, command: Command) -> None:
        if not self.is_dying:
            NotingWorld.carry_out(self, command)
            if isinstance(command, WriteMetrics):
                with closing(JsonlSink(self.path)) as sink:
                    sink.write(command.policy, command.agent_steps, command.metrics)
        elif isinstance(command, WriteMetrics):
            self.lost[command.policy].append((command.agent_steps, command.metrics))
        else:
            World.carry_out(self, command)

    def resume(self) -> None:
        self.is_dying = False
        self.state = make_state(self.state.settings.config, self.setup, fold(self.committed))
        written = read_written(self.path)
        finished = [
            row
            for row in self.committed
            if isinstance(row, AssignmentRow) and row.kind == "train" and row.status == "finished"
        ]
        if written is not None:
            go_on(self.state.league, self.state.measured.curves, written, finished)
        self.given.clear()
        self.questions.clear()
        self.fits.clear()
        self.handle(ControllerStarted())
        self.join()


def killed_world(path: Path) -> KilledWorld:
    world = noting_world(PLAYED)
    return KilledWorld(
        state=world.state,
        setup=world.setup,
        learner=world.learner,
        committed=world.committed,
        path=path,
    )


def rated_steps(points: Points, policy: str) -> list[tuple[int, float]]:
    return [
        (step, metrics["evaluation/matches_count"])
        for step, metrics in points[policy]
        if "rating/mean_elo" in metrics
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_kills_leave_no_point_out_and_make_none_double(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    world = killed_world(tmp_path / "metrics.jsonl")
    world.join()
    kills = 0
    while not world.over and kills < 12:
        # Half of the kills come between a step's commits and its points.
        world.is_dying = bool(rng.random() < 0.15)
        world.step()
        if world.is_dying or rng.random() < 0.15:
            kills += 1
            world.resume()
    world.is_dying = False
    world.run()
    assert kills == 12
    num_lost = 0
    for policy in world.state.tables.policies:
        assert trained_steps(world.points[policy]) == [500 * number for number in range(1, 9)]
        rated = Counter(rated_steps(world.points, policy))
        # The end of the run writes the last fit once more, if it has moved the ratings.
        last = rated_steps(world.points, policy)[-1]
        assert {point for point, number in rated.items() if number > 1} <= {last}
        # Each lost point is written again.
        lost = {step for step, _ in rated_steps(world.lost, policy)}
        num_lost += len(trained_steps(world.lost[policy])) + len(lost)
        assert lost <= {step for step, _ in rated}
    assert num_lost
    steps = [step for step, _ in world.points["run"]]
    assert steps == sorted(steps)
    assert steps[-1] == world.state.tables.run.agent_steps


def test_what_was_written_is_read_across_two_files_and_damage(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert read_written(path) is None
    with closing(JsonlSink(path)) as sink:
        sink.write("player/p000", 128, {"pbt/generation_count": 0.0})
        sink.write("player/p001", 128, {"pbt/generation_count": 0.0})
    path.rename(tmp_path / "metrics.0001.jsonl")
    standing = {"rating/mean_elo": 1.0, "evaluation/matches_count": 8.0}
    with closing(JsonlSink(path)) as sink:
        sink.write("player/p000", 256, {"pbt/generation_count": 0.0})
        sink.write("player/p000", 128, standing)
        sink.write("run", 384, {"run/elapsed_s": 1.0})
    with path.open("a") as file:
        file.write('{"policy": "run", "agent_steps": 999, "crc32": "00000000"}\n{"policy": "ru')
    written = read_written(path)
    assert written is not None
    trained, rated, run_steps = written
    assert trained == {"player/p000": 256, "player/p001": 128}
    steps, figures = rated["player/p000"]
    assert (steps, standing.items() <= figures.items()) == (128, True)
    assert run_steps == 384
