from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from arena.config import NetworkConfig
from arena.envs.spaces.observations import describe, flatten_into
from arena.errors import ExportError
from arena.export.card import Card
from arena.export.graph import Flatten, random_feeds
from arena.export.onnx import check_onnx, export_onnx, opset_version
from arena.export.write import Written
from arena.networks.actor_critic import ActorCritic, make_actor_critic
from arena.spaces import ObservationLayout
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


@pytest.mark.parametrize("num_rows", [1, 3, 200])
def test_any_batch_size_works(board_export: Written[Card], num_rows: int) -> None:
    session = onnxruntime.InferenceSession(board_export.directory / "policy.onnx")
    feeds = {
        "observation": np.zeros((num_rows, 6, 7, 2), dtype=np.float32),
        "action_mask": np.ones((num_rows, 7), dtype=np.bool_),
    }
    logits, action = session.run(["logits", "action"], feeds)
    assert (logits.shape, action.shape) == ((num_rows, 7), (num_rows,))


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
    # The lowest that serve: onnxruntime 1.14 reads them, and no release after it asks for more.
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


def test_the_check_saw_64_observations(board_export: Written[Card]) -> None:
    assert 0.0 <= board_export.differences[0] < 1e-4


@pytest.mark.parametrize(
    "space",
    [
        gymnasium.spaces.Box(low=-1.0, high=1.0, shape=(3, 2), dtype=np.float32),
        gymnasium.spaces.Box(low=-1.0, high=1.0, shape=(), dtype=np.float32),
        gymnasium.spaces.Discrete(5),
        gymnasium.spaces.Discrete(5, start=-2),
    ],
)
def test_the_graph_flattens_as_the_learners_do(space: gymnasium.Space[Any]) -> None:
    layout = ObservationLayout.from_json(describe(space))
    feeds = random_feeds(layout, 20, rng=np.random.default_rng(2))
    expected = np.full((20, layout.size), np.nan, dtype=np.float32)
    for row, observation in zip(expected, feeds["observation"], strict=True):
        flatten_into(layout, row, observation.astype(layout.leaves[0].dtype))
    inputs = {name: torch.from_numpy(values) for name, values in feeds.items()}
    np.testing.assert_array_equal(Flatten(layout)(inputs).numpy(), expected)
