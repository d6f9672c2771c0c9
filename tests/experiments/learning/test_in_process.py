"""The learner that checks watch: it learns as if nobody watched, and it is counted right."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from arena.types import RANDOM_BOT
from experiments.learning import mirror
from experiments.learning.in_process import MirrorLearner, Record, prepare
from populations.config.overrides import apply_overrides
from populations.config.run_config import validate_config
from populations.config.run_file import RunFile

OVERRIDES = ("environment.num_envs=8", "populations.player.hyperparameters.rollout_length=4")


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def run_file() -> RunFile:
    return prepare(validate_config(apply_overrides(mirror.SETTINGS, OVERRIDES)))


@contextmanager
def learner(run_file: RunFile, *, seed: int) -> Iterator[MirrorLearner]:
    made = MirrorLearner(run_file, seed=seed)
    try:
        yield made
    finally:
        made.close()


def test_training_goes_on_as_if_nobody_watched(run_file: RunFile) -> None:
    with learner(run_file, seed=1) as watched, learner(run_file, seed=1) as alone:
        for _ in range(3):
            watched.advance()
            record = watched.play(RANDOM_BOT, matches=5, greedy=False)
            assert record.matches == 10
            assert 0 <= record.win_rate <= record.score <= 1
        for _ in range(3):
            alone.advance()
        torch.testing.assert_close(watched.weights(), alone.weights(), rtol=0, atol=0)
        # Both seats learn: every decision of every environment counts.
        assert watched.agent_steps == alone.agent_steps == 3 * 8 * 4
        assert watched.updates == 3
        assert watched.train_s > 0
    with learner(run_file, seed=2) as other:
        other.advance()
        ours, theirs = other.weights(), alone.weights()
        assert all(not torch.equal(ours[n], theirs[n]) for n in ours if n.endswith("weight"))


def test_exploring_the_same_hyperparameters_changes_nothing(run_file: RunFile) -> None:
    same = run_file.config.populations["player"].start_values
    with learner(run_file, seed=1) as explorer, learner(run_file, seed=1) as other:
        for _ in range(2):
            explorer.advance()
            explorer.explore(same)
            other.advance()
        torch.testing.assert_close(explorer.weights(), other.weights(), rtol=0, atol=0)
        explorer.explore({**same, "ema_decay": 0.5})
        before = explorer.weights()
        explorer.advance()
        other.advance()
        torch.testing.assert_close(explorer.live_weights(), other.weights(), rtol=0, atol=0)
        middle = (before["head.weight"] + other.weights()["head.weight"]) / 2
        torch.testing.assert_close(explorer.weights()["head.weight"], middle)


def test_a_draw_is_half_a_win_or_none() -> None:
    record = Record(wins=3, draws=4, losses=1)
    assert (record.matches, record.score, record.win_rate) == (8, 0.625, 0.375)


def test_what_is_reached_at_once_takes_one_update(run_file: RunFile) -> None:
    found = mirror.time_to_target(run_file, seed=1, target=0.0, max_s=60.0)
    assert (found["holds"], found["updates"], found["agent_steps"]) == (True, 1, 32)


def test_what_cannot_be_reached_ends_with_the_time(run_file: RunFile) -> None:
    found = mirror.time_to_target(run_file, seed=1, target=1.1, max_s=0.01)
    assert not found["holds"]
    assert isinstance(found["train_s"], float)
    assert found["train_s"] >= 0.01
