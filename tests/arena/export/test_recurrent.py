"""Policies with a memory, exported: whole episodes in torch, ONNX and the standalone player."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from arena.config import NetworkConfig
from arena.core import ActorInput
from arena.export.actor import ExportedActor
from arena.export.champion import Champion
from arena.export.write import write_export
from tests.arena.export.conftest import make_policy
from tests.layouts import frozen_policy

pytestmark = pytest.mark.xdist_group("exports")

BOX = gymnasium.spaces.Box(low=-1.0, high=1.0, shape=(5,), dtype=np.float32)
AGENTS = ("player_0", "player_1")
LENGTH = 12


@pytest.mark.parametrize("core", ["gru", "lstm"])
@pytest.mark.slow
def test_an_episode_is_the_same_everywhere(core: Any, tmp_path: Path) -> None:
    network = NetworkConfig(
        hidden_sizes=(16,), core=core, core_size=8, separate_value=core == "lstm"
    )
    actions = gymnasium.spaces.Discrete(6)
    card, weights = make_policy(BOX, actions=actions, mask="info", network=network)
    directory = tmp_path / "champion"
    written = write_export(directory, card=card, weights=weights)
    assert written.differences[0] < 1e-4
    assert f"| memory | {core} 8 |" in (directory / "card.md").read_text(encoding="utf-8")
    policy = frozen_policy(card, weights, greedy=True)
    exported = ExportedActor(directory, greedy=True)
    assert exported.state_size == policy.state_size == (8 if core == "gru" else 16)
    with pytest.raises(ValueError, match="needs its recurrent state"):
        exported.act(
            ActorInput(observation=torch.zeros(1, 5)), agent="", generator=torch.Generator()
        )
    champion = Champion(directory)
    rng = np.random.default_rng(0)
    for episode in range(2):
        champion.reset()
        unused = torch.Generator()
        by_torch = dict.fromkeys(AGENTS, torch.zeros(1, policy.state_size))
        by_onnx = dict(by_torch)
        for _ in range(LENGTH):
            for agent in AGENTS:
                row = rng.normal(size=5).astype(np.float32)
                mask = rng.random(6) < 0.7
                mask[0] = True
                legal = torch.from_numpy(mask)[None]
                seen = torch.from_numpy(row)[None]
                chosen = []
                for player, states in ((policy, by_torch), (exported, by_onnx)):
                    inputs = ActorInput(
                        observation=seen, action_mask=legal, recurrent_state=states[agent]
                    )
                    output = player.act(inputs, agent=agent, generator=unused)
                    assert output.recurrent_state is not None
                    states[agent] = output.recurrent_state
                    chosen.append(int(output.action))
                assert champion.act(row, mask, agent=agent) == chosen[0] == chosen[1]
                torch.testing.assert_close(by_onnx[agent], by_torch[agent], rtol=0, atol=1e-5)
        assert episode == 0 or float(by_torch[AGENTS[0]].abs().sum()) > 0.0
