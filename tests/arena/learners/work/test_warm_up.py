"""Normalizers of new policies are filled by a bot's play."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from arena.checkpoints.tensors import load_checkpoint
from arena.config import NormalizerWarmUp
from arena.learners.work.worker import Worker
from arena.wire.messages import Failed
from tests.arena.learners.conftest import finished
from tests.arena.learners.work.test_worker_on_pettingzoo import (
    RANDOM,
    live,
    make_setup,
    start,
    train,
)
from tests.arena.samples import ASSETS, Counted


def make(
    root: Path,
    warm_up: NormalizerWarmUp | None,
    sides: dict[str, tuple[str, ...]] | None = None,
    **changes: Any,
) -> Worker:
    setup = make_setup(
        root,
        "lessons:parallel_env",
        num_envs=2,
        launch_directory=ASSETS,
        sides=sides,
        kwargs={"length": 4},
        lessons=[{"length": 2}, {"length": 4}],
        population={"normalizer_warm_up": warm_up, **changes},
    )
    return Worker(setup, progress=Counted(), should_stop=lambda: False)


def first_weights(root: Path, worker: Worker) -> Mapping[str, torch.Tensor]:
    _, weights, _ = load_checkpoint(root, start(worker, "player/p000"))
    return weights


@pytest.mark.parametrize("sides", [None, {"all": ("a", "b")}], ids=["rivals", "cooperation"])
def test_statistics_are_those_of_the_first_lesson_by_hand_and_weights_are_as_ever(
    tmp_path: Path, sides: dict[str, tuple[str, ...]] | None
) -> None:
    (tmp_path / "warm").mkdir()
    (tmp_path / "cold").mkdir()
    warm = first_weights(
        tmp_path / "warm", make(tmp_path / "warm", NormalizerWarmUp(agent_steps=8), sides)
    )
    cold = first_weights(tmp_path / "cold", make(tmp_path / "cold", None, sides))
    name = next(name for name in warm if name.endswith("observation_normalizer.mean"))
    count = name.replace("mean", "count")
    # Two environments with two agents: four decisions a call, at 0 and at half of an episode.
    assert warm[count].item() == 8
    assert warm[name].tolist() == pytest.approx([0.25] * 3)
    assert warm[name.replace("mean", "variance")].tolist() == pytest.approx([0.0625] * 3)
    assert cold[count].item() == 0
    for key in warm:
        if "normalizer" not in key:
            torch.testing.assert_close(warm[key], cold[key], rtol=0, atol=0)


def test_only_new_weights_are_warmed_up(tmp_path: Path) -> None:
    worker = make(tmp_path, NormalizerWarmUp(agent_steps=8))
    first = start(worker, "player/p000")
    message = train(
        ("player/p000", first), seatings=[(live("player/p000"), RANDOM)], agent_steps=32
    )
    answer = finished(worker.carry_out(message))
    _, weights, _ = load_checkpoint(tmp_path, answer.checkpoints[0].checkpoint)
    count = next(name for name in weights if name.endswith("observation_normalizer.count"))
    # 32 decisions of the rollout: 16 calls of step in two environments, in the seat that learns.
    assert weights[count].item() == 8 + 32


def test_an_algorithm_without_normalizers_says_so(tmp_path: Path) -> None:
    warm_up = NormalizerWarmUp(agent_steps=8)
    worker = make(tmp_path, warm_up, algorithm="dqn:Dqn")
    message = train(("player/p000", None), seatings=(), agent_steps=0)
    # Its own hyperparameters, all by default.
    trainee = replace(message.trainees[0], hyperparameters={})
    answer = worker.carry_out(replace(message, trainees=(trainee,)))
    assert isinstance(answer, Failed)
    assert "normalizer_warm_up: its algorithm has no method update_normalizers" in answer.reason


def test_a_bot_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must be a bot .* got 'player/p000'"):
        NormalizerWarmUp(agent_steps=1, player="player/p000")
    spelled = NormalizerWarmUp(agent_steps=1, player="bot:a:B( x = 1 )")
    assert spelled.player == "bot:a:B(x=1)"
