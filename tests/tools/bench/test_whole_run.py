from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from arena.errors import ConfigError
from populations.errors import RunFailed
from tools.bench.children import rate_of_children
from tools.bench.launched import Commits, committed_rate
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
    # A rollout has at least 16 steps; in mirror blocks both seats learn.
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


def commits(*entries: tuple[float, str, int]) -> Commits:
    found = defaultdict(list)
    for time_s, learner, agent_steps in entries:
        found[learner].append((time_s, agent_steps))
    return found


def test_what_was_done_before_the_first_commit_of_a_learner_does_not_count() -> None:
    found = commits((3.0, "a", 999), (4.0, "b", 999), (5.0, "a", 200), (8.0, "b", 200))
    # a makes 200 steps in 2 s, b 200 in 4 s: 400 in 6 learner seconds, with two learners.
    assert committed_rate(found, num_learners=2) == pytest.approx(2 * 400 / 6)


def test_a_learner_that_was_replaced_is_no_third_one() -> None:
    found = commits(
        (0.0, "a", 100), (10.0, "a", 100), (0.0, "b", 100), (5.0, "b", 50), (6.0, "c", 50),
        (11.0, "c", 50),
    )  # fmt: skip
    assert committed_rate(found, num_learners=2) == pytest.approx(2 * 200 / 20)


def test_a_learner_with_one_commit_says_nothing() -> None:
    found = commits((0.0, "a", 100), (1.0, "b", 100), (2.0, "a", 100))
    assert committed_rate(found, num_learners=1) == pytest.approx(50.0)


@pytest.mark.parametrize("found", [{}, commits((1.0, "a", 100), (2.0, "b", 100))])
def test_a_run_that_is_too_short_says_so(found: Commits) -> None:
    with pytest.raises(RunFailed, match=r"too short: .* --run-seconds"):
        committed_rate(found, num_learners=2)


REPORTS = """
import sys
print("ready", flush=True)
assert sys.stdin.readline() == "go\\n"
print('{"agent_steps": ' + sys.argv[1] + ', "duration_s": 2.0}')
"""

MakeModule = Callable[[str], str]


@pytest.fixture
def make_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeModule:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def make(text: str) -> str:
        (tmp_path / "bench_child.py").write_text(text)
        return "bench_child"

    return make


def test_the_rates_of_all_children_add_up(make_module: MakeModule) -> None:
    assert rate_of_children(make_module(REPORTS), [["10"], ["30"]]) == 20.0


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("raise SystemExit(3)", "instead of 'ready'"),
        ("print('hello')", "instead of 'ready'"),
        ("print('ready', flush=True); input(); raise SystemExit(3)", "ended with code 3"),
        ("print('ready', flush=True); input(); print('many')", "instead of a report"),
    ],
)
def test_a_child_that_fails_is_named(make_module: MakeModule, text: str, complaint: str) -> None:
    with pytest.raises(RunFailed, match=f"bench_child .*{complaint}"):
        rate_of_children(make_module(text), [[]])


def test_a_failure_ends_the_others(make_module: MakeModule) -> None:
    # The first process would wait for its message for ever.
    text = """
import sys
if sys.argv[1] == "fails":
    raise SystemExit(1)
print("ready", flush=True)
sys.stdin.readline()
"""
    with pytest.raises(RunFailed):
        rate_of_children(make_module(text), [["waits"], ["fails"]])
