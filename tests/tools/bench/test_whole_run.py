from __future__ import annotations

from pathlib import Path

import pytest

from arena.errors import ConfigError
from populations.errors import RunFailed
from tools.bench.measure import Effort, compare
from tools.bench.subject import load_subject
from tools.bench.unmanaged import UnmanagedLearner, recorded_training
from tools.bench.whole_run import WholeRuns, number_of_learners

TINY = [
    "environment.num_envs=8",
    "populations.player.size=2",
    "populations.player.network.hidden_sizes=[8]",
    "ghosts.every_agent_steps=500",
    "assignment.target_s=0.1",
]


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.long
def test_orchestration_compares_a_run_with_its_learners_unmanaged(tmp_path: Path) -> None:
    subject = load_subject("rock_paper_scissors", TINY)
    said: list[str] = []
    runs = WholeRuns(
        subject,
        effort=Effort(rounds=1, seconds=0.1, run_seconds=0.5),
        num_learners=1,
        directory=tmp_path,
        say=said.append,
    )
    (stage,) = runs.orchestration()
    found = compare(stage, rounds=1)
    assert (found.name, found.rounds) == ("orchestration", 1)
    assert found.bound_name == "the same 1 learners unmanaged"
    assert found.value > 0.0
    assert said == ["a run of 0.5 s", "a run of 0.5 s", "1 learners unmanaged for 0.5 s"]

    messages = recorded_training(tmp_path / "run1")
    assert any(
        player.weights is not None
        for message in messages
        for seating in message.opponents
        for player in seating.players
    )
    learner = UnmanagedLearner(tmp_path / "run1", messages)
    agent_steps = learner()
    # One rollout of 16 steps at least; in mirror blocks both seats learn.
    assert 16 * 8 <= agent_steps <= 2 * 16 * 8


@pytest.mark.integration
@pytest.mark.slow
def test_a_run_that_fails_says_why(tmp_path: Path) -> None:
    subject = load_subject("rock_paper_scissors", TINY)
    runs = WholeRuns(
        subject,
        effort=Effort(rounds=1, seconds=0.1, run_seconds=1.0),
        num_learners=1,
        directory=tmp_path,
        say=lambda text: None,
    )
    (tmp_path / "run0").mkdir()
    (tmp_path / "run0" / "something").write_text("in the way")
    with pytest.raises(RunFailed, match=r"code 2: .*neither empty nor a run directory"):
        next(runs.run())


def test_the_number_of_learners_is_the_configurations_unless_given() -> None:
    subject = load_subject("rock_paper_scissors", ["learners=3", *TINY])
    assert number_of_learners(subject, None) == 3
    assert number_of_learners(subject, 1) == 1
    subject = load_subject("rock_paper_scissors", ["learners={player: 1}", *TINY])
    with pytest.raises(ConfigError, match="needs --learners"):
        number_of_learners(subject, None)
