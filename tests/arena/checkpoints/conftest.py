from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from arena.checkpoints.manifest import OPTIMIZER, WEIGHTS, Manifest
from tests.populations.rows import make_manifest

Publishable = tuple[Manifest, dict[str, bytes]]
MakePublishable = Callable[..., Publishable]


@pytest.fixture
def make_publishable() -> MakePublishable:
    def make(
        *, policy: str = "player/p003", agent_steps: int = 120_000, weights: bytes = b"w" * 999
    ) -> Publishable:
        files = {WEIGHTS: weights, OPTIMIZER: b"o" * 555}
        manifest = make_manifest(
            policy,
            files,
            generation=2,
            agent_steps=agent_steps,
            learner_updates=77,
            hyperparameters={"learning_rate": 3e-4},
        )
        return manifest, files

    return make


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path / "run"
