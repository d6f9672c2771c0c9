from __future__ import annotations

from typing import Any

import pytest

from arena.learners.smoke_training import SmokeTraining, run_smoke_training
from tests.arena.learners.conftest import HYPERPARAMETERS, NUM_ENVS, Bench, make_setup

ROLLOUT = 8 * NUM_ENVS
"""Decisions: one in each environment, eight calls of step."""


def tried(bench: Bench, **changes: Any) -> SmokeTraining:
    arguments = {"agent_steps": 2 * ROLLOUT, "matches": 4, **changes}
    return run_smoke_training(
        make_setup(bench.root), hyperparameters={"player": HYPERPARAMETERS}, **arguments
    )


def test_it_trains_and_plays_against_random_play(bench: Bench) -> None:
    trial = tried(bench)
    assert trial.problem == ""
    assert trial.agent_steps == 2 * ROLLOUT
    # Two rollouts, each of two epochs of two minibatches.
    assert trial.learner_updates == 8
    assert trial.matches == 4
    assert trial.score is not None
    assert 0.0 <= trial.score <= 1.0
    assert trial.mean_return is not None
    assert set(trial.entropy) == {"player"}
    # Three actions.
    assert 0.0 < trial.entropy["player"] <= 1.0987
    assert not list(bench.root.iterdir()), "the run directory is not its own"


def test_the_same_trial_again(bench: Bench) -> None:
    one, other = tried(bench), tried(bench)
    assert (one.score, one.mean_return, one.entropy) == (
        other.score,
        other.mean_return,
        other.entropy,
    )


def test_without_matches(bench: Bench) -> None:
    trial = tried(bench, matches=0)
    assert trial.learner_updates == 8
    assert (trial.matches, trial.score, trial.mean_return) == (0, None, None)


def test_what_fails_is_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> object:
        raise ValueError("no board")

    monkeypatch.setattr("arena.learners.work.worker.make_batched_env", broken)
    said, *lines = tried(bench).problem.splitlines()
    assert said.startswith("making environment ")
    assert said.endswith(" raised ValueError: no board")
    # Where it was raised, in a file of the user's, which this one is here; nothing of Arena's.
    assert lines == [lines[0], '    raise ValueError("no board")']
    assert lines[0].endswith("in broken")
