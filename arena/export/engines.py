"""A policy's graph with the names and shapes that game engines read.

``unity``: ML-Agents by Sentis, model version 3: ``TensorNames.cs``, ``SentisModelInfo.cs`` and
``SentisModelParamLoader.cs`` of com.unity.ml-agents. Each part of an observation is a sensor,
``obs_0``, ``obs_1``, ... float32 [batch, ...], three axes with the channels first; ``action_masks``
float32 [batch, n], 1 for legal choices. ``discrete_actions`` int64 [batch, branches] and
``continuous_actions`` float32 [batch, C] are the likeliest ones, as are the ``deterministic_`` ones
beside them. A recurrent policy has ``recurrent_in`` and ``recurrent_out`` [batch, 1, H].

``godot``: Godot RL Agents, ``ONNXInference.cs`` and ``sync.gd`` of its plugin: ``obs`` float32
[batch, F] and ``state_ins`` float32 [batch], which comes back as ``state_outs``; ``output`` float32
[batch, K] has the probabilities of each choice (the plugin takes the largest number above 0) and
numbers side by side.

Numbers are scaled so that their bounds are -1 and 1, as both engines have them. Sentis reads the
operators' versions 7 to 15 (its manual, "Supported models").

Tests: `tests/arena/export/test_engines.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.utils import Extractor

from arena.errors import ConfigError, ExportError
from arena.export.card import Card
from arena.export.graph import ACTION_MASK, LOGITS, STATE_IN, STATE_OUT, action_names, input_names
from arena.spaces import ActionLayout, ObservationLayout

Engine = Literal["unity", "godot"]

OPSET = 15
"""Version of the operators, the newest that Sentis reads."""

FLOAT = int(TensorProto.FLOAT)
_BATCH = "batch"


def check_engine(engine: Engine, card: Card) -> None:
    """Check that an engine can play a policy.

    Raises:
        ConfigError: If it cannot give what the policy reads, or take what it answers.
    """
    action, why = card.action_layout, ""
    if card.network.agent_id:
        why = "a policy that is told which agent decides (network.agent_id)"
    elif not (np.isfinite(action.low).all() and np.isfinite(action.high).all()):
        why = "numbers without bounds"
    elif engine == "godot" and card.mask is not None:
        why = "action masks"
    elif engine == "godot" and card.network.core != "none":
        why = "a recurrent policy"
    if why:
        raise ConfigError(f"--for {engine}: it has no place for {why}")


def for_engine(engine: Engine, model: bytes, card: Card) -> bytes:
    """Return a policy's graph with an engine's inputs and outputs.

    Args:
        engine: Engine, after `check_engine`.
        model: Graph as `arena.export.onnx.export_onnx` gives it.
        card: Card of the policy.

    Raises:
        ExportError: If it has an operator that engines do not read.
    """
    graph = _Graph(onnx.load_from_string(model), card.action_layout)
    (_for_unity if engine == "unity" else _for_godot)(graph, card.observation_layout)
    return graph.finished()


class _Graph:
    """Graph whose inputs and outputs are replaced."""

    def __init__(self, model: onnx.ModelProto, action: ActionLayout) -> None:
        self.action = action
        self._model = model
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._before: list[onnx.NodeProto] = []
        self._after: list[onnx.NodeProto] = []
        # These names are outputs of the policy's operations, and of those added after them.
        self._made = {name for node in model.graph.node for name in node.output}
        given = {value.name: value for value in model.graph.input}
        self.has_mask = ACTION_MASK in given
        # [batch, H]
        state = given.get(STATE_IN)
        self.state_size = 0 if state is None else state.type.tensor_type.shape.dim[1].dim_value

    def take(self, name: str, *shape: int) -> None:
        """Add an input float32 [batch, ...]."""
        self._inputs.append(helper.make_tensor_value_info(name, FLOAT, [_BATCH, *shape]))

    def give(self, name: str, *shape: int | str, kind: int = FLOAT) -> None:
        """Add an output."""
        self._outputs.append(helper.make_tensor_value_info(name, kind, shape))

    def add(self, kind: str, inputs: Sequence[str], *outputs: str, **given: object) -> None:
        """Add an operation, before those of the policy or after those whose outputs it takes."""
        node = helper.make_node(kind, inputs, outputs, **given)
        if self._made.isdisjoint(inputs):
            self._before.append(node)
        else:
            self._made.update(outputs)
            self._after.append(node)

    def constant(self, name: str, values: object, dtype: type[np.generic] = np.float32) -> str:
        """Add a constant and return its name."""
        tensor = numpy_helper.from_array(np.array(values, dtype=dtype))
        self._before.append(helper.make_node("Constant", [], [name], value=tensor))
        return name

    def parts(self, logits: str) -> list[str]:
        """Split logits by category, and return the names."""
        branches = self.action.branches
        names = [f"logits.{at}" for at in range(len(branches))]
        sizes = self.constant("branches", branches, np.int64)
        self.add("Split", [logits, sizes], *names, axis=1)
        return names

    def numbers(self) -> list[str]:
        """Scale the numbers of each Box to [-1, 1], rows [batch, size], and return the names."""
        action, first, names = self.action, 0, []
        for output, leaf in zip(action_names(action), action.leaves, strict=True):
            if not leaf.is_box:
                continue
            low, high = (
                np.asarray(side)[first : first + leaf.size] for side in (action.low, action.high)
            )
            name, first = f"{output}.scaled", first + leaf.size
            shape = self.constant(f"{output}.shape", [-1, leaf.size], np.int64)
            middle = self.constant(f"{output}.middle", low / 2 + high / 2)
            half = self.constant(f"{output}.half", high / 2 - low / 2)
            self.add("Reshape", [output, shape], f"{output}.row")
            self.add("Sub", [f"{output}.row", middle], f"{output}.distance")
            self.add("Div", [f"{output}.distance", half], name)
            names.append(name)
        return names

    def finished(self) -> bytes:
        """Return the graph without what its outputs do not need."""
        own = self._model.graph
        nodes = [*self._before, *own.node, *self._after]
        for node in nodes:
            # Version 18 has the number of equal parts as an attribute; earlier versions count the
            # outputs.
            for attribute in [one for one in node.attribute if one.name == "num_outputs"]:
                node.attribute.remove(attribute)
        graph = helper.make_graph(nodes, own.name, self._inputs, self._outputs, own.initializer)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = self._model.ir_version
        names = ([value.name for value in side] for side in (self._inputs, self._outputs))
        model = Extractor(model).extract_model(*names)
        try:
            # The check rejects operators that differ in the older version.
            onnx.checker.check_model(model, full_check=True)
        except onnx.checker.ValidationError as error:
            raise ExportError(f"engines read operators of version {OPSET}: {error}") from error
        return bytes(model.SerializeToString())


def _for_unity(graph: _Graph, observation: ObservationLayout) -> None:
    for at, (name, leaf) in enumerate(
        zip(input_names(observation), observation.leaves, strict=True)
    ):
        shape = leaf.shape
        if len(shape) == 3:
            graph.take(f"obs_{at}", shape[2], shape[0], shape[1])
            graph.add("Transpose", [f"obs_{at}"], name, perm=[0, 2, 3, 1])
            continue
        # A sensor has one to three axes.
        graph.take(f"obs_{at}", *(shape if len(shape) in (1, 2) else (math.prod(shape),)))
        to = graph.constant(f"{name}.shape", [-1, *shape], np.int64)
        graph.add("Reshape", [f"obs_{at}", to], name)
    for number, name in ((3, "version_number"), (graph.state_size, "memory_size")):
        graph.give(graph.constant(name, [number]), 1)
    if graph.state_size:
        graph.take("recurrent_in", 1, graph.state_size)
        flat = graph.constant("recurrent_in.shape", [-1, graph.state_size], np.int64)
        deep = graph.constant("recurrent_out.shape", [-1, 1, graph.state_size], np.int64)
        graph.add("Reshape", ["recurrent_in", flat], STATE_IN)
        graph.add("Reshape", [STATE_OUT, deep], "recurrent_out")
        graph.give("recurrent_out", _BATCH, 1, graph.state_size)
    if numbers := graph.numbers():
        graph.add("Concat", numbers, "continuous_actions", axis=1)
        _give_actions(graph, "continuous", [1], [graph.action.num_continuous])
    if graph.action.branches:
        # ML-Agents masks all choices.
        graph.take("action_masks", graph.action.num_logits)
        half = graph.constant("half", 0.5)
        legal = ACTION_MASK if graph.has_mask else "legal"
        graph.add("Greater", ["action_masks", half], legal)
        least = graph.constant("least", np.finfo(np.float32).min)
        graph.add("Where", [legal, LOGITS, least], "legal_logits")
        parts = graph.parts("legal_logits")
        for part in parts:
            graph.add("ArgMax", [part], f"{part}.choice", axis=1, keepdims=1)
        graph.add("Concat", [f"{part}.choice" for part in parts], "discrete_actions", axis=1)
        branches = graph.action.branches
        _give_actions(graph, "discrete", [1, len(branches)], branches)


def _give_actions(graph: _Graph, kind: str, shape: Sequence[int], sizes: Sequence[int]) -> None:
    dtype = TensorProto.INT64 if kind == "discrete" else FLOAT
    graph.add("Identity", [f"{kind}_actions"], f"deterministic_{kind}_actions")
    for name in (f"{kind}_actions", f"deterministic_{kind}_actions"):
        graph.give(name, _BATCH, len(sizes) if kind == "discrete" else sizes[0], kind=dtype)
    # Sentis requires these sizes as float32, too.
    name = f"{kind}_action_output_shape"
    graph.give(graph.constant(name, np.reshape(sizes, shape)), *shape)


def _for_godot(graph: _Graph, observation: ObservationLayout) -> None:
    names = input_names(observation)
    sizes = [math.prod(leaf.shape) for leaf in observation.leaves]
    graph.take("obs", sum(sizes))
    graph.take("state_ins")
    flat = [f"{name}.row" for name in names]
    graph.add("Split", ["obs", graph.constant("sizes", sizes, np.int64)], *flat, axis=1)
    for name, row, leaf in zip(names, flat, observation.leaves, strict=True):
        to = graph.constant(f"{name}.shape", [-1, *leaf.shape], np.int64)
        graph.add("Reshape", [row, to], name)
    numbers = iter(graph.numbers())
    choices = iter(graph.parts(LOGITS) if graph.action.branches else ())
    parts = []
    for leaf in graph.action.leaves:
        if leaf.is_box:
            parts.append(next(numbers))
            continue
        for _ in leaf.choices:
            part = next(choices)
            graph.add("Softmax", [part], f"{part}.share", axis=1)
            parts.append(f"{part}.share")
    graph.add("Concat", parts, "output", axis=1)
    graph.give("output", _BATCH, graph.action.num_logits + graph.action.num_continuous)
    graph.add("Identity", ["state_ins"], "state_outs")
    graph.give("state_outs", _BATCH)
