"""Centralized critics in whole assignments, with nothing faked."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from arena.checkpoints.tensors import load_checkpoint
from arena.config import NetworkConfig
from tests.arena.learners.conftest import evaluate, finished, frozen
from tests.arena.learners.work.test_worker_on_pettingzoo import (
    RANDOM,
    live,
    make_worker,
    start,
    train,
)

SPEAKER, LISTENER = ("speaker_0",), ("listener_0",)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("speaker", "listener"),
    [
        ({"critic": "joint"}, {"critic": "joint", "agent_id": True, "core": "gru"}),
        ({"critic": "state", "core": "lstm"}, {"critic": "joint"}),
        ({}, {"critic": "state"}),
    ],
)
@pytest.mark.slow
def test_two_populations_learn_together(
    speaker: dict[str, Any], listener: dict[str, Any], tmp_path: Path
) -> None:
    """Each with what its own values see; what they publish plays without it."""
    pytest.importorskip("mpe2")
    common = {"hidden_sizes": (16,), "core_size": 8}
    networks = {
        "speaker": NetworkConfig.model_validate({**common, **speaker}),
        "listener": NetworkConfig.model_validate({**common, **listener}),
    }
    names = ("speaker/p000", "listener/p000")
    results = []
    for attempt in ("one", "other"):
        root = tmp_path / attempt
        root.mkdir()
        worker = make_worker(
            root,
            "mpe2/simple_speaker_listener_v4",
            num_envs=2,
            sides={"team": SPEAKER + LISTENER},
            populations={"speaker": SPEAKER, "listener": LISTENER},
            networks=networks,
            reads_state=True,
        )
        first = [start(worker, name) for name in names]
        # What a seating calls a team is two seats at home and two away.
        seating = tuple(live(name) for name in names) * 2
        message = train(*zip(names, first, strict=True), seatings=[seating], agent_steps=130)
        answer = finished(worker.carry_out(message))
        assert all(math.isfinite(value) for value in answer.metrics.values())
        home = [
            frozen(root, published.checkpoint, published.policy) for published in answer.checkpoints
        ]
        players = (*home, RANDOM, RANDOM)
        (matches,) = finished(worker.carry_out(evaluate((*players, 2)))).tallies
        assert matches.matches == 2
        worker.close()
        results.append((answer.checkpoints, answer.tallies, matches))
    assert results[0] == results[1]
    _, weights, optimizer = load_checkpoint(tmp_path / "one", results[0][0][1].checkpoint)
    assert "exp_avg.critic.head.weight" in optimizer
    assert float(weights["critic_normalizer.count"]) > 0.0
