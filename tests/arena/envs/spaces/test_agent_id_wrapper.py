from __future__ import annotations

import numpy as np
import torch

from arena.config import NetworkConfig
from arena.environment_spec import AgentSpec, SpaceJson
from arena.envs.spaces.agent_id_wrapper import AgentIdWrapper, observation_layout
from arena.networks.actor_critic import make_actor_critic
from arena.spaces import is_agent_id
from tests.arena.conftest import ScriptedEnv
from tests.layouts import discrete

BOX = {"kind": "Box", "shape": [4], "dtype": "float32", "low": "-inf", "high": "inf"}
PIXELS = {"kind": "Box", "shape": [8, 8, 1], "dtype": "uint8", "low": 0, "high": 255}
TOLD = NetworkConfig(agent_id=True, hidden_sizes=(8,))


def facts(observation: SpaceJson) -> AgentSpec:
    return AgentSpec(
        observation=observation, action={"kind": "Discrete", "n": 3, "start": 0}, mask=None
    )


def test_a_row_ends_with_who_decides() -> None:
    agents = ("a", "b", "c")
    layout = observation_layout(facts(BOX), agents=agents, network=TOLD)
    assert layout.size == 4 + 3
    assert is_agent_id(layout.leaves[-1])
    assert layout.leaves[-1].place == slice(4, 7)
    # Bots get the environment's observation without the appended id.
    rows = np.arange(14, dtype=np.float32).reshape(2, 7)
    np.testing.assert_array_equal(layout.to_environment(rows), rows[:, :4])
    plain = observation_layout(facts(BOX), agents=agents, network=NetworkConfig())
    assert plain.size == 4


def test_images_stay_bytes_and_ids_are_not_normalized() -> None:
    pixels = observation_layout(facts(PIXELS), agents=("a", "b"), network=TOLD)
    assert pixels.dtype == np.uint8
    network = make_actor_critic(TOLD, observation=pixels, action=discrete(3), seed=0)
    assert network.observation_normalizer is None
    rows = torch.zeros(2, 66, dtype=torch.uint8)
    rows[0, 64] = rows[1, 65] = 1
    logits = network.logits(rows)
    assert not torch.equal(logits[0], logits[1])
    numbers = observation_layout(facts(BOX), agents=("a", "b"), network=TOLD)
    network = make_actor_critic(TOLD, observation=numbers, action=discrete(3), seed=0)
    assert network.observation_normalizer is not None
    assert network.observation_normalizer.mean.shape == (4,)


def test_every_decision_says_whose_it_is() -> None:
    for in_turns in (True, False):
        bare = ScriptedEnv(
            2,
            agents=("a", "b", "c"),
            populations={"pair": ("c", "a"), "single": ("b",)},
            in_turns=in_turns,
            length=lambda seed, episode: 100,
        )
        env = AgentIdWrapper(bare, populations={"pair": ("c", "a")}, device=torch.device("cpu"))
        turn = env.reset([5, 6])
        seen = set()
        for _ in range(8):
            pair, single = turn.groups["pair"], turn.groups["single"]
            assert single.observation.shape[-1] == 4
            assert pair.observation.shape[-1] == 4 + 2
            where = pair.agent_index >= 0
            for index, row in zip(
                pair.agent_index[where].tolist(), pair.observation[where].tolist(), strict=True
            ):
                # The scripted row ends with the agent's own index.
                assert row[3] == index
                assert row[4:] == ([0.0, 1.0] if index == 0 else [1.0, 0.0])
                seen.add(index)
            assert turn.final_observation["pair"][..., 4:].tolist() == [torch.eye(2).tolist()] * 2
            actions = {
                name: torch.ones_like(group.agent_index) for name, group in turn.groups.items()
            }
            turn = env.step(actions)
        assert seen == {0, 2}
