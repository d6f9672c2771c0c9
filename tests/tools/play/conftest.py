from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.conftest import NETWORK, RunBuilder


@pytest.fixture(scope="session")
def original_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Connect Four of PettingZoo, not its batched game, with a recurrent policy."""
    run = RunBuilder(
        tmp_path_factory.mktemp("runs") / "original",
        {
            "environment": {"id": "classic/connect_four-v3", "backend": "pettingzoo"},
            "populations": {"player": {"size": 1, "network": {**NETWORK, "core": "lstm"}}},
        },
    )
    latest = run.checkpoint("player/p000", agent_steps=1_000, seed=5)
    run.policy("player/p000", index=0, latest=latest)
    return run.write()
