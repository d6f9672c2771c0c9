"""Policies whose numbers are not finite: F24.

Single updates are in `tests/arena/learning/test_ppo.py`, copies of a donor in
`tests/populations/controller/evolution/test_pbt.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from arena.learning.ppo import Ppo
from arena.wire.messages import Failed, Finished
from populations.controller.state.leases import Patience
from tests.arena.learners.conftest import mirror, train
from tests.faults.runs import check_left, document, served
from tests.faults.workers import first_checkpoint, make_worker


def checkpoints(root: Path) -> list[Path]:
    return sorted(root.glob("populations/*/*/checkpoints/*/*.safetensors"))


def all_are_finite(root: Path) -> bool:
    files = checkpoints(root)
    assert files
    return all(bool(t.isfinite().all()) for file in files for t in load_file(file).values())


def test_an_exploding_policy_goes_on_once_with_half_its_rate_and_then_stays_out(
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    player = {
        "size": 1,
        "network": {"hidden_sizes": [8]},
        "hyperparameters": {"learning_rate": 1e30, "rollout_length": 8},
        "search_space": {},
    }
    config = document(populations={"player": player})
    with served(run, config, patience=Patience()) as watched:
        watched.server.run()
    story = watched.of("quarantined", "learning_rate_halved", "run_failed")
    kinds = [event.kind for event in story]
    assert kinds == ["quarantined", "learning_rate_halved", "quarantined", "run_failed"]
    assert "not finite in 3 updates in a row" in str(story[0].data["reason"])
    assert story[1].data["old"] == {**story[1].data["new"], "learning_rate": 1e30}  # type: ignore[dict-item]
    assert story[1].data["new"]["learning_rate"] == 5e29  # type: ignore[index,call-overload]
    assert "no active policy is left" in str(story[3].data["reason"])
    assert {e.data["failure"] for e in watched.of("assignment_failed")} == {"non_finite"}
    assert all_are_finite(run)
    check_left(run)


def test_a_weight_that_is_not_a_number_publishes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = first_checkpoint(make_worker(tmp_path, "faulty:Rounds"))
    worker = make_worker(tmp_path, "faulty:Rounds")
    before = checkpoints(tmp_path)
    load = Ppo.load

    def poisoned(self: Ppo, *arguments: object, **words: object) -> None:
        load(self, *arguments, **words)  # type: ignore[arg-type]
        with torch.no_grad():
            next(self._network.parameters()).view(-1)[0] = torch.nan

    monkeypatch.setattr(Ppo, "load", poisoned)
    failed = worker.carry_out(train(start, mirror(), agent_steps=400))
    assert isinstance(failed, Failed)
    assert failed.kind in ("non_finite", "error")
    assert "finite" in failed.reason or "nan" in failed.reason
    assert checkpoints(tmp_path) == before
    monkeypatch.undo()
    # The next one loads what is on disk, not what is left in memory.
    finished = worker.carry_out(train(start, mirror(), agent_steps=100))
    assert isinstance(finished, Finished), finished
    assert all_are_finite(tmp_path)
    worker.close()
