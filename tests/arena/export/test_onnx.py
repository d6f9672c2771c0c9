from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from arena.codec import plain
from arena.config import NetworkConfig
from arena.envs.spaces.observations import describe
from arena.errors import ExportError
from arena.export.card import Card
from arena.export.champion import Champion, GraphPlayer
from arena.export.graph import TorchSession
from arena.export.onnx import check_onnx, export_onnx, opset_version
from arena.export.write import Written
from arena.networks.actor_critic import ActorCritic, make_actor_critic
from arena.spaces import ObservationLayout
from tests.arena.export.conftest import make_policy
from tests.layouts import discrete, flat_observation, frozen_policy

pytestmark = pytest.mark.xdist_group("exports")

Policy = tuple[Card, dict[str, torch.Tensor]]


def fresh_network(observation_size: int, num_actions: int, *, seed: int = 1) -> ActorCritic:
    return make_actor_critic(
        NetworkConfig(hidden_sizes=(8,)),
        observation=flat_observation(observation_size),
        action=discrete(num_actions),
        seed=seed,
    ).eval()


def test_inputs_and_outputs_are_those_that_were_promised(
    board_export: Written[Card], number_export: Written[Card]
) -> None:
    def signature(written: Written[Card]) -> tuple[list[Any], list[Any]]:
        session = onnxruntime.InferenceSession(written.directory / "policy.onnx")
        return (
            [(i.name, i.type, i.shape) for i in session.get_inputs()],
            [(o.name, o.type, o.shape) for o in session.get_outputs()],
        )

    inputs, outputs = signature(board_export)
    assert inputs == [
        ("observation", "tensor(float)", ["batch", 6, 7, 2]),
        ("action_mask", "tensor(bool)", ["batch", 7]),
    ]
    assert outputs == [
        ("logits", "tensor(float)", ["batch", 7]),
        ("action", "tensor(int64)", ["batch"]),
        ("value", "tensor(float)", ["batch"]),
    ]
    inputs, outputs = signature(number_export)
    assert inputs == [("observation", "tensor(float)", ["batch"])]
    assert outputs[0] == ("logits", "tensor(float)", ["batch", 4])


def test_the_graph_holds_its_weights_and_no_traces_of_this_machine(
    board_export: Written[Card],
) -> None:
    data = (board_export.directory / "policy.onnx").read_bytes()
    model = onnx.ModelProto.FromString(data)
    locations = {tensor.data_location for tensor in model.graph.initializer}
    assert locations == {onnx.TensorProto.DEFAULT}
    assert b".py" not in data
    # These are the lowest sufficient versions: onnxruntime 1.14 and all later releases read them.
    assert (model.ir_version, opset_version(model)) == (8, 18)


@pytest.mark.slow
def test_a_flat_box_needs_no_reshaping_and_the_exporter_says_nothing(
    capfd: pytest.CaptureFixture[str],
) -> None:
    space = gymnasium.spaces.Box(low=-np.inf, high=np.inf, shape=(16,), dtype=np.float32)
    layout = ObservationLayout.from_json(describe(space))
    network = fresh_network(layout.size, 5)
    model = export_onnx(network, layout=layout, has_mask=False)
    assert capfd.readouterr() == ("", "")
    check_onnx(model, network=network, layout=layout, has_mask=False)


def test_the_check_refuses_the_graph_of_other_weights(board_export: Written[Card]) -> None:
    card = board_export.card
    with pytest.raises(ExportError, match="logits must agree"):
        check_onnx(
            (board_export.directory / "policy.onnx").read_bytes(),
            network=fresh_network(84, 7, seed=2),
            layout=ObservationLayout.from_json(card.observation.space),
            has_mask=True,
        )


def test_the_check_refuses_another_value(board_policy: Policy, board_export: Written[Card]) -> None:
    card, weights = board_policy
    scaled = {**weights, "return_normalizer.mean": weights["return_normalizer.mean"] + 0.01}
    with pytest.raises(ExportError, match="value must agree"):
        check_onnx(
            (board_export.directory / "policy.onnx").read_bytes(),
            network=frozen_policy(card, scaled).network,
            layout=card.observation_layout,
            has_mask=True,
        )


BOX = gymnasium.spaces.Box(low=-1.0, high=1.0, shape=(5,), dtype=np.float32)


def by_torch(policy: Policy) -> tuple[GraphPlayer, ActorCritic]:
    card, weights = policy
    network = frozen_policy(card, weights).network
    session = TorchSession(network, layout=card.observation_layout, has_mask=card.mask is not None)
    return GraphPlayer(plain(card), [session]), network


def test_it_plays_as_the_export_does(board_policy: Policy, board_export: Written[Card]) -> None:
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 2, (64, 6, 7, 2)).astype(np.int8)
    masks = rng.random((64, 7)) < 0.5
    masks[:, 1] = True
    player, _ = by_torch(board_policy)
    champion = Champion(board_export.directory)
    assert player.act(rows, masks).tolist() == champion.act(rows, masks).tolist()
    for seed in range(3):
        drawn = [one.act(rows, masks, sample=True, seed=seed) for one in (player, champion)]
        assert drawn[0].tolist() == drawn[1].tolist()
    np.testing.assert_allclose(player.value(rows), champion.value(rows), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        player.probabilities(rows, masks), champion.probabilities(rows, masks), rtol=1e-5
    )


@pytest.mark.parametrize("core", ["gru", "lstm"])
@pytest.mark.parametrize("separate", [False, True])
def test_episodes_of_a_batch_go_on_side_by_side(core: Any, separate: bool) -> None:
    network = NetworkConfig(hidden_sizes=(8,), core=core, core_size=4, separate_value=separate)
    policy = make_policy(BOX, actions=gymnasium.spaces.Discrete(6), mask=None, network=network)
    together, module = by_torch(policy)
    alone = [by_torch(policy)[0] for _ in range(3)]
    rows = np.random.default_rng(2).uniform(-1, 1, (4, 2, 3, 5)).astype(np.float32)
    states = {agent: torch.zeros(3, module.state_size) for agent in together.agents}
    for step in rows:
        for agent, seen in zip(together.agents, step, strict=True):
            with torch.inference_mode():
                parameters, value, state = module.step(
                    module.normalize_observation(torch.from_numpy(seen)), states[agent]
                )
                states[agent] = state
                value = module.return_normalizer.denormalize(value)
            # `value` is called twice, because it must not change the recurrent state.
            for _ in range(2):
                values = together.value(seen, agent=agent)
                np.testing.assert_allclose(values, value, rtol=1e-5, atol=1e-6)
                chances = together.probabilities(seen, agent=agent)
                np.testing.assert_allclose(chances, parameters.softmax(dim=1), rtol=1e-5)
            ones = [one.act(row, agent=agent) for one, row in zip(alone, seen, strict=True)]
            assert together.act(seen, agent=agent).tolist() == ones
    with pytest.raises(ValueError, match="rows of the one before, 3, until reset, got 2"):
        together.act(rows[0, 0, :2], agent=together.agents[0])
    together.reset()
    assert together.act(rows[0, 0, :2], agent=together.agents[0]).shape == (2,)
