from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from arena.checkpoints.files import file_records
from arena.checkpoints.manifest import OPTIMIZER, WEIGHTS, Manifest
from arena.config import NetworkConfig
from arena.types import Digest

Publishable = tuple[Manifest, dict[str, bytes]]
MakePublishable = Callable[..., Publishable]


@pytest.fixture
def make_publishable() -> MakePublishable:
    def make(
        *, policy: str = "player/p003", agent_steps: int = 120_000, weights: bytes = b"w" * 999
    ) -> Publishable:
        files = {WEIGHTS: weights, OPTIMIZER: b"o" * 555}
        manifest = Manifest(
            policy=policy,
            generation=2,
            agent_steps=agent_steps,
            learner_updates=77,
            hyperparameters={"learning_rate": 3e-4},
            parent=None,
            donor=None,
            environment_digest=Digest("0" * 64),
            population_agents=("player_0", "player_1"),
            network=NetworkConfig(),
            files=file_records(files),
            arena_version="0",
            created="2026-01-01T00:00:00+00:00",
        )
        return manifest, files

    return make


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path / "run"
