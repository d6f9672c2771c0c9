"""Curves of a simulated run whose controller is killed between commits and points."""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from arena.metrics.jsonl import JsonlSink
from populations.controller.monitoring.written_points import (
    go_on,
    read_written,
)
from populations.controller.state.commands import Command, WriteMetrics
from populations.controller.state.events import ControllerStarted
from populations.controller.state.state import make_state
from populations.records.rows import AssignmentRow
from tests.populations.controller.monitoring.test_curves import (
    PLAYED,
    NotingWorld,
    Points,
    noting_world,
    trained_steps,
)
from tests.populations.controller.simulated import World, fold


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
        # Half of the kills come between the commits of a step and their points.
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
        # All weights of which a point was lost have one.
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
