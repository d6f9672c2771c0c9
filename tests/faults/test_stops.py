"""Limits of ``stop`` that end a run, by real processes, with the controller killed on the way."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest

from arena.wire.address import default_endpoint, remove_socket
from arena.wire.messages import Train
from populations.audit.verify import verify_run
from populations.config.run_file import RUN_FILE, RunFile
from populations.controller.evolution.curriculum import LESSON_BEGAN
from populations.storage.database import JOURNAL
from populations.storage.journal import JournalReader
from populations.views.questions.inspection import Inspection
from populations.views.run import status_document
from tests.faults.runs import check_left, document, events, launch, run_with_kills

pytestmark = [pytest.mark.xdist_group("stops"), pytest.mark.timeout(400)]

END_S = 120.0
KILLED = -9
FAILED = 3

STOPS: tuple[tuple[str, Mapping[str, object], str], ...] = (
    ("success", {"success_rate": 0.5}, "stop.success_rate: every population has a policy that"),
    ("success by return", {"success_rate": 1.0, "success_return": 0.0}, "stop.success_rate: "),
    (
        "success of all",
        {"success_rate": 1.0, "members": "all"},
        "stop.success_rate: every active policy is one that succeeds in 1 ",
    ),
    (
        "score",
        {"evaluation": {"player": "bot:random", "score": 0.3}},
        "stop.evaluation: every population has a policy whose score against bot:random is 0.3 ",
    ),
    (
        "return of all",
        {"evaluation": {"player": "bot:random", "return": -0.25}, "members": "all"},
        "stop.evaluation: every active policy is one whose return against bot:random is -0.25 ",
    ),
    ("rating", {"rating": -300.0}, "stop.rating: every population has a policy whose lower "),
    (
        "rating of all",
        {"rating": -300.0, "members": "all"},
        "stop.rating: every active policy is one whose lower bound is -300",
    ),
    ("duration", {"duration_s": 12.0}, "stop.duration_s: training has taken "),
    ("agent steps", {"agent_steps": 6_000}, "stop.agent_steps: the run has done "),
    ("steps of each", {"agent_steps_per_policy": 3_000}, "stop.agent_steps_per_policy: every "),
)


def game(success: object, stop: Mapping[str, object]) -> dict[str, object]:
    """A game that is always drawn, so that every score is 1/2 and every return 0."""
    (settings,) = cast("dict[str, object]", document()["populations"]).values()
    return document() | {
        "populations": {"player": settings},
        "environment": {
            "id": "own_figures:FiguresAtOnce",
            "kwargs": {"success": success},
            "num_envs": 4,
        },
        "evaluation": {"share": 0.3, "bots": ["bot:random"]},
        "stop": {"agent_steps_per_policy": 100_000_000} | dict(stop),
    }


def ended(run: Path) -> tuple[str, str]:
    """State and reason, as ``status`` tells them."""
    inspection = Inspection.open(run)
    try:
        status = status_document(inspection, None)
        return str(status["state"]), str(status["reason"])
    finally:
        inspection.close()


@pytest.mark.parametrize(
    ("stop", "reason"), [case[1:] for case in STOPS], ids=[c[0] for c in STOPS]
)
def test_a_limit_ends_the_run_whatever_kills_the_controller_before(
    stop: Mapping[str, object], reason: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    config: Mapping[str, object] | None = game(True, stop)
    # The kills are in the middle of training, then between the last decision and the end.
    for failpoints in ("controller.before_commit=kill@12", "controller.ended=kill@1"):
        process = launch(run, config, failpoints=failpoints)
        _, error = process.communicate(timeout=END_S)
        assert process.returncode == KILLED, error
        check_left(run)
        config = None
    process = launch(run, None)
    out, error = process.communicate(timeout=END_S)
    assert process.returncode == 0, error
    state, why = ended(run)
    assert state == "finished"
    assert why.startswith(reason)
    assert reason in out + error
    check_left(run)
    # A controller killed after the end leaves its socket, which no resume replaces.
    remove_socket(default_endpoint(RunFile.load(run / RUN_FILE).run))


def test_a_kill_at_the_very_end_is_no_fault_after_a_refused_resume_either(tmp_path: Path) -> None:
    run = tmp_path / "run"
    stop = {"agent_steps_per_policy": 600}
    process = launch(run, game(True, stop), failpoints="controller.before_sweep=kill@1")
    _, error = process.communicate(timeout=END_S)
    assert process.returncode == KILLED, error
    # A learner that is killed while it publishes leaves such a directory.
    leftover = next(run.glob("populations/*/*/checkpoints")) / f".tmp-{'0' * 32}"
    leftover.mkdir()
    check_left(run)
    process = launch(run, None, more=["seed=77"])
    _, error = process.communicate(timeout=END_S)
    assert process.returncode == 2, error
    check_left(run)
    # A resume that continues the run removes it.
    process = launch(run, None)
    _, error = process.communicate(timeout=END_S)
    assert process.returncode == 0, error
    check_left(run)
    assert not leftover.exists()
    # As above, the killed controller has left its socket.
    remove_socket(default_endpoint(RunFile.load(run / RUN_FILE).run))


def test_an_environment_that_never_tells_of_success_ends_the_run_with_that_sentence(
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    process = launch(run, game(None, {"success_rate": 0.5}))
    _, error = process.communicate(timeout=END_S)
    assert process.returncode == FAILED, error
    state, why = ended(run)
    assert state == "failed"
    assert "has not put success" in why
    assert "has not put success" in error
    check_left(run)


@pytest.mark.parametrize(
    ("stop", "rule"),
    [
        (
            {"evaluation": {"player": "bot:random"}},
            "must have one of score and return, not both or none",
        ),
        (
            {"evaluation": {"player": "bot:outsiders:Other", "score": 0.5}},
            "stop.evaluation.player must be one of evaluation.bots or a population's player "
            "(bot:random), got 'bot:outsid",
        ),
        ({"success_rate": 1.5}, "stop.success_rate"),
        ({"members": "most"}, "stop.members"),
    ],
)
def test_a_goal_that_cannot_be_is_refused(
    stop: Mapping[str, object], rule: str, tmp_path: Path
) -> None:
    process = launch(tmp_path / "run", game(True, stop))
    _, error = process.communicate(timeout=END_S)
    assert process.returncode == 2
    assert rule in error
    assert not (tmp_path / "run").exists()


def lessons(*, deterministic: bool) -> dict[str, object]:
    """Episodes of two, four and six steps, in cooperation; six in matches."""
    (settings,) = cast("dict[str, object]", document()["populations"]).values()
    return {
        **document(),
        "environment": {
            "id": "lessons:parallel_env",
            "num_envs": 4,
            "sides": {"all": ["a", "b"]},
            "curriculum": [
                {"until": {"agent_steps": 800}, "kwargs": {"length": 2}},
                {"until": {"return": 3.5}, "kwargs": {"length": 4}},
                {"kwargs": {"length": 6}},
            ],
        },
        "populations": {"player": settings},
        "deterministic": deterministic,
        "stop": {"agent_steps_per_policy": 4000},
    }


@pytest.mark.parametrize("deterministic", [False, True])
def test_each_lesson_begins_once_whatever_kills_the_controller(
    tmp_path: Path, deterministic: bool
) -> None:
    run = tmp_path / "run"
    # In each epoch a lesson has just begun or is about to begin.
    run_with_kills(run, lessons(deterministic=deterministic), (16, 12, 9, 14))
    began = events(run, LESSON_BEGAN)
    assert [event.subject for event in began] == ["2", "3"]
    (_, second) = (event.data["values"] for event in began)
    assert second == {"player/p000": 4.0, "player/p001": 4.0}
    with JournalReader(run / JOURNAL) as reader:
        lesson_of = {
            row.assignment_id: row.message.lesson
            for row in reader.assignments(statuses=["finished"], kind="train")
            if isinstance(row.message, Train) and row.agent_steps
        }
        tallies = [(row.kind, row.assignment_id, row.tally) for row in reader.tallies()]
    assert set(lesson_of.values()) == {0, 1, 2}
    for kind, assignment, tally in tallies:
        # An episode that is carried over ends in its own lesson; in cooperation each side of a
        # match plays an episode of its own.
        length = 2 * 6 if kind == "evaluate" else (2, 4, 6)[lesson_of[assignment]]
        assert tally.length_sum == tally.matches * length
    assert verify_run(run).faults == []
    check_left(run)


OVER = 2000
STEPS = {0: 0.02, 512: 0.01, 1200: 0.0}


def scheduled() -> dict[str, object]:
    """A learning rate that falls on a line, and an entropy that falls in steps."""
    (settings,) = cast("dict[str, dict[str, object]]", document()["populations"]).values()
    fixed = cast("dict[str, object]", settings["hyperparameters"])
    schedules = {
        "learning_rate": {"linear": [1e-3, 1e-5], "over_agent_steps": OVER},
        "entropy_coef": {"steps": STEPS},
    }
    return {
        **document(),
        "populations": {"player": {**settings, "hyperparameters": {**fixed, **schedules}}},
        "stop": {"agent_steps_per_policy": 3000},
    }


def test_every_assignment_has_the_values_of_its_agent_steps_whatever_kills_the_controller(
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    run_with_kills(run, scheduled(), (11, 9, 14))
    with JournalReader(run / JOURNAL) as reader:
        messages = [
            row.message
            for row in reader.assignments(statuses=["finished"], kind="train")
            if isinstance(row.message, Train) and row.agent_steps
        ]
    seen = set()
    factors: dict[str, float] = {}
    for message in messages:
        (trainee,) = message.trainees
        done = min(trainee.agent_steps / OVER, 1.0)
        # 1e-3 + (1e-5 - 1e-3) * done, times the factor that the policy was given at the start
        scheduled_rate = 1e-3 - 9.9e-4 * done
        rate = float(trainee.hyperparameters["learning_rate"])
        factor = factors.setdefault(trainee.policy, rate / scheduled_rate)
        # The explored value stays within the bounds of the search space.
        assert rate == pytest.approx(max(scheduled_rate * factor, 1e-5), rel=1e-9)
        entropy = next(value for at, value in reversed(STEPS.items()) if at <= trainee.agent_steps)
        assert trainee.hyperparameters["entropy_coef"] == entropy
        seen.add(entropy)
    assert factors["player/p000"] == pytest.approx(1.0)
    assert len(set(factors.values())) == 2
    assert seen == set(STEPS.values())
    assert verify_run(run).faults == []
    check_left(run)
