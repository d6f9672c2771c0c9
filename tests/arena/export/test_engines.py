"""Graphs for game engines against what those document, and against the policy's own graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import onnx
import onnxruntime
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from onnx import TensorProto

from arena.config import NetworkConfig
from arena.environment_spec import MaskPlace
from arena.errors import ConfigError
from arena.export.card import Card
from arena.export.engines import Engine, check_engine
from arena.export.graph import action_names, random_feeds
from arena.export.write import write_export
from tests.arena.export.conftest import make_policy

pytestmark = pytest.mark.xdist_group("exports")

Facts = dict[str, tuple[int, list[int | str]]]
"""Element type and shape by name."""

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
ROWS = 32

SENSES = Dict(
    {
        "eye": Box(0, 255, (8, 6, 3), np.uint8),
        "grid": Box(-1.0, 1.0, (4, 5)),
        "mode": Discrete(3, start=2),
        "pair": Tuple((MultiDiscrete([2, 3]), Box(-1.0, 1.0, (2, 2, 2, 2)))),
    }
)
DEEDS = Dict(
    {
        "go": Discrete(4, start=2),
        "steer": Box(np.array([-2.0, 0.5]), np.array([2.0, 1.0]), dtype=np.float64),
        "with": Tuple((MultiBinary(2), Box(0, 9, (1, 2), np.int64))),
    }
)
BOARD = Box(0, 1, (6, 7, 2), np.int8)
SMALL = NetworkConfig(hidden_sizes=(16,))
GRU = NetworkConfig(hidden_sizes=(16,), core="gru", core_size=12)
VECTOR = Box(-1.0, 1.0, (5,))

VERSION: Facts = {"version_number": (FLOAT, [1]), "memory_size": (FLOAT, [1])}


def discrete(*branches: int) -> Facts:
    """Outputs of ML-Agents' discrete actions."""
    return {
        "discrete_actions": (INT64, ["batch", len(branches)]),
        "deterministic_discrete_actions": (INT64, ["batch", len(branches)]),
        "discrete_action_output_shape": (FLOAT, [1, len(branches)]),
    }


def continuous(size: int) -> Facts:
    """Outputs of ML-Agents' continuous actions."""
    return {
        "continuous_actions": (FLOAT, ["batch", size]),
        "deterministic_continuous_actions": (FLOAT, ["batch", size]),
        "continuous_action_output_shape": (FLOAT, [1]),
    }


def floats(**shapes: list[int]) -> Facts:
    """Inputs: a batch of float32."""
    return {name: (FLOAT, ["batch", *shape]) for name, shape in shapes.items()}


Case = tuple[Engine, gymnasium.Space[Any], gymnasium.Space[Any], MaskPlace | None, NetworkConfig]

CASES: dict[str, tuple[Case, Facts, Facts]] = {
    "unity, a board": (
        ("unity", BOARD, Discrete(7), "observation", SMALL),
        # The image layout is channels first.
        floats(obs_0=[2, 6, 7], action_masks=[7]),
        {**VERSION, **discrete(7)},
    ),
    "unity, no masks": (
        ("unity", VECTOR, MultiDiscrete([3, 2]), None, SMALL),
        floats(obs_0=[5], action_masks=[5]),
        {**VERSION, **discrete(3, 2)},
    ),
    "unity, numbers": (
        ("unity", VECTOR, Box(-3.0, 1.0, (2,)), None, SMALL),
        floats(obs_0=[5]),
        {**VERSION, **continuous(2)},
    ),
    "unity, everything": (
        ("unity", SENSES, DEEDS, None, SMALL),
        floats(obs_0=[3, 8, 6], obs_1=[4, 5], obs_2=[1], obs_3=[2], obs_4=[16], action_masks=[8]),
        {**VERSION, **continuous(4), **discrete(4, 2, 2)},
    ),
    "unity, memory": (
        ("unity", VECTOR, Discrete(3), None, GRU),
        floats(obs_0=[5], action_masks=[3], recurrent_in=[1, 12]),
        {**VERSION, **discrete(3), "recurrent_out": (FLOAT, ["batch", 1, 12])},
    ),
    "godot, choices": (
        ("godot", VECTOR, Discrete(4, start=3), None, SMALL),
        floats(obs=[5], state_ins=[]),
        floats(output=[4], state_outs=[]),
    ),
    "godot, numbers": (
        ("godot", VECTOR, Box(-3.0, 1.0, (2,)), None, SMALL),
        floats(obs=[5], state_ins=[]),
        floats(output=[2], state_outs=[]),
    ),
    "godot, everything": (
        ("godot", SENSES, DEEDS, None, SMALL),
        floats(obs=[144 + 20 + 1 + 2 + 16], state_ins=[]),
        floats(output=[4 + 2 + 4 + 2], state_outs=[]),
    ),
}


def facts(values: Any) -> Facts:
    found: Facts = {}
    for value in values:
        tensor = value.type.tensor_type
        shape = [dim.dim_param or dim.dim_value for dim in tensor.shape.dim]
        found[value.name] = (tensor.elem_type, shape)
    return found


def in_engines_units(card: Card, outputs: dict[str, Any]) -> tuple[Any, Any]:
    """Return the champion's choices from 0 [N, B], and its numbers between -1 and 1 [N, C]."""
    choices: list[Any] = []
    numbers: list[Any] = []
    action = card.action_layout
    for name, leaf in zip(action_names(action), action.leaves, strict=True):
        rows = outputs[name].reshape(ROWS, -1)
        (numbers if leaf.is_box else choices).append(rows)
    if not numbers:
        return np.concatenate(choices, axis=1), np.zeros((ROWS, 0))
    low, high = np.array(action.low), np.array(action.high)
    scaled = 2.0 * (np.concatenate(numbers, axis=1) - low) / (high - low) - 1.0
    return np.concatenate(choices, axis=1) if choices else np.zeros((ROWS, 0)), scaled


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if "everything" in n else n for n in CASES],
)
def test_a_graph_is_what_its_engine_documents_and_plays_as_the_champion(
    name: str, tmp_path: Path
) -> None:
    (engine, observation, actions, mask, network), inputs, outputs = CASES[name]
    card, weights = make_policy(observation, actions=actions, mask=mask, network=network)
    written = write_export(tmp_path / "out", card=card, weights=weights, engine=engine)
    path = written.directory / f"{engine}.onnx"
    assert path.name in written.card.files
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    # The manual of Sentis allows opset versions 7 to 15.
    assert [opset.version for opset in model.opset_import if not opset.domain] == [15]
    assert facts(model.graph.input) == inputs
    assert facts(model.graph.output) == outputs

    rng = np.random.default_rng(1)
    own = random_feeds(card.observation_layout, ROWS, rng=rng)
    arrays = [*own.values()]
    given: dict[str, Any] = {}
    if engine == "unity":
        for at, rows in enumerate(arrays):
            channels_first = np.moveaxis(rows, 3, 1) if rows.ndim == 4 else rows
            given[f"obs_{at}"] = channels_first.reshape(ROWS, *inputs[f"obs_{at}"][1][1:])
    else:
        given["obs"] = np.concatenate([rows.reshape(ROWS, -1) for rows in arrays], axis=1)
        given["state_ins"] = np.arange(ROWS, dtype=np.float32)
    if "action_masks" in inputs:
        num_logits = card.action_layout.num_logits
        legal = np.ones((ROWS, num_logits), dtype=bool)
        if mask is not None:
            legal = rng.random((ROWS, num_logits)) < 0.5
            legal[:, 3] = True
            own["action_mask"] = legal
        given["action_masks"] = legal.astype(np.float32)
    if network.core != "none":
        state = rng.uniform(-1.0, 1.0, (ROWS, 12)).astype(np.float32)
        own["state_in"], given["recurrent_in"] = state, state[:, None]

    def run(file: Path, feeds: dict[str, Any]) -> dict[str, Any]:
        session = onnxruntime.InferenceSession(file)
        names = [node.name for node in session.get_outputs()]
        return dict(zip(names, session.run(names, feeds), strict=True))

    champions = run(written.directory / "policy.onnx", own)
    found = run(path, given)
    choices, numbers = in_engines_units(card, champions)
    if engine == "unity":
        assert found["version_number"].tolist() == [3.0]
        assert found["memory_size"].tolist() == [float(network.core != "none") * 12]
        for prefix in ("", "deterministic_"):
            if choices.size:
                assert (found[f"{prefix}discrete_actions"] == choices).all()
            if numbers.size:
                assert found[f"{prefix}continuous_actions"] == pytest.approx(numbers, abs=1e-5)
        if choices.size:
            sizes = found["discrete_action_output_shape"].tolist()
            assert sizes == [list(card.action_layout.branches)]
        if numbers.size:
            assert found["continuous_action_output_shape"].tolist() == [numbers.shape[1]]
        if network.core != "none":
            assert found["recurrent_out"][:, 0] == pytest.approx(champions["state_out"], abs=1e-5)
        return
    assert (found["state_outs"] == given["state_ins"]).all()
    for row in range(ROWS):
        taken = as_the_plugin_takes(found["output"][row].tolist(), card)
        assert taken[0] == choices[row].tolist()
        assert taken[1] == pytest.approx(numbers[row].tolist(), abs=1e-5)


def as_the_plugin_takes(output: list[float], card: Card) -> tuple[list[int], list[float]]:
    """Take choices and numbers as `_extract_action_dict` of sync.gd does."""
    choices: list[int] = []
    numbers: list[float] = []
    for leaf in card.action_layout.leaves:
        for size in leaf.choices:
            # The reference's maximum starts at 0.
            largest, chosen = 0.0, 0
            for at in range(size):
                if output[at] > largest:
                    largest, chosen = output[at], at
            choices.append(chosen)
            output = output[size:]
        if leaf.is_box:
            numbers += [min(max(number, -1.0), 1.0) for number in output[: leaf.size]]
            output = output[leaf.size :]
    assert not output
    return choices, numbers


@pytest.mark.parametrize(
    ("engine", "actions", "mask", "network", "why"),
    [
        ("godot", Discrete(3), "info", {}, "action masks"),
        ("godot", Discrete(3), None, {"core": "gru"}, "a recurrent policy"),
        ("unity", Box(0.0, np.inf, (1,)), None, {}, "numbers without bounds"),
        ("unity", Discrete(3), None, {"agent_id": True}, "which agent decides"),
        ("unity", Discrete(3), "info", {"core": "gru"}, ""),
    ],
)
def test_what_an_engine_has_no_place_for_is_refused(
    engine: Engine,
    actions: gymnasium.Space[Any],
    mask: MaskPlace | None,
    network: dict[str, Any],
    why: str,
) -> None:
    config = NetworkConfig(hidden_sizes=(16,), **network)
    card, _ = make_policy(VECTOR, actions=actions, mask=mask, network=config)
    if not why:
        check_engine(engine, card)
        return
    with pytest.raises(ConfigError, match=f"--for {engine}: it has no place for .*{why}"):
        check_engine(engine, card)


def test_unity_masks_choices_of_a_policy_that_knows_no_masks(tmp_path: Path) -> None:
    card, weights = make_policy(VECTOR, actions=MultiDiscrete([3, 2]), mask=None, network=SMALL)
    written = write_export(tmp_path / "out", card=card, weights=weights, engine="unity")
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(ROWS, 5)).astype(np.float32)
    legal = np.zeros((ROWS, 5), dtype=np.float32)
    # At least one choice of each branch stays legal.
    chosen = np.stack([rng.integers(3, size=ROWS), rng.integers(2, size=ROWS)], axis=1)
    legal[np.arange(ROWS), chosen[:, 0]] = legal[np.arange(ROWS), 3 + chosen[:, 1]] = 1.0
    session = onnxruntime.InferenceSession(written.directory / "unity.onnx")
    (found,) = session.run(["discrete_actions"], {"obs_0": rows, "action_masks": legal})
    assert (found == chosen).all()
