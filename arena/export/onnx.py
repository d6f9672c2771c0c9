"""A policy as an ONNX graph: normalization, masking and the greedy action inside.

Inputs and outputs are those that ``arena export`` promises: ``observation`` float32 [N, ...] as the
environment gives it, ``action_mask`` bool [N, n] where there are masks; ``logits`` float32 [N, n]
with illegal actions at float32's minimum, ``action`` int64 [N]. Actions count from 0: the start of
a Discrete action space is added by who plays (`champion.py`), as the card says.

Shapes: N rows, F features of a flattened observation, n actions.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx
import torch
from torch import nn

from arena.envs.spaces import ObservationLayout
from arena.errors import ExportError
from arena.export.session import make_session
from arena.networks.actor_critic import ActorCritic

NUM_CHECKED = 64
LOGITS_TOLERANCE = 1e-4
"""Relative to the largest logit (at least 1): runtimes add up in different orders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxCheck:
    """How well a graph reproduces its policy.

    Attributes:
        observations: How many random ones were compared.
        max_logit_difference: The largest difference, over legal actions.
    """

    observations: int
    max_logit_difference: float


class _Graph(nn.Module):
    """What is exported."""

    def __init__(self, network: ActorCritic, layout: ObservationLayout) -> None:
        super().__init__()
        self._network = network
        self._layout = layout

    def forward(
        self, observation: torch.Tensor, action_mask: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Masked logits and the greedy action."""
        logits = self._network.logits(flatten(observation, self._layout), action_mask)
        return logits, logits.argmax(dim=1)


def flatten(observation: torch.Tensor, layout: ObservationLayout) -> torch.Tensor:
    """What the network takes, from what the environment gives. float32 [N, ...] to [N, F]."""
    rows = observation.flatten(1) if layout.shape else observation.unsqueeze(1)
    if layout.kind == "Box":
        return rows
    values = torch.arange(layout.start, layout.start + layout.size, dtype=rows.dtype)
    return (rows == values).to(rows.dtype)


def random_observations(
    layout: ObservationLayout, num_rows: int, *, rng: np.random.Generator
) -> npt.NDArray[np.float32]:
    """Observations as the graph takes them. float32 [num_rows, ...]."""
    if layout.kind == "Discrete":
        numbers = rng.integers(layout.start, layout.start + layout.size, num_rows)
        return numbers.astype(np.float32)
    return rng.normal(scale=2.0, size=(num_rows, *layout.shape)).astype(np.float32)


def export_onnx(
    network: ActorCritic, *, layout: ObservationLayout, num_actions: int, has_mask: bool
) -> bytes:
    """Write a policy as an ONNX model with its weights inline.

    Args:
        network: The policy, on the CPU.
        layout: How the environment gives observations.
        num_actions: n.
        has_mask: Whether the environment says which actions are legal.

    Raises:
        ExportError: If the exporter gives no valid model.
    """
    # Two rows: a batch of one would be taken for a constant.
    inputs: dict[str, torch.Tensor] = {"observation": torch.zeros(2, *layout.shape)}
    if has_mask:
        inputs["action_mask"] = torch.ones(2, num_actions, dtype=torch.bool)
    batch = torch.export.Dim("batch")
    graph = _Graph(network, layout).eval()
    with _quiet():
        program = torch.onnx.export(
            graph,
            tuple(inputs.values()),
            input_names=list(inputs),
            output_names=["logits", "action"],
            dynamic_shapes=tuple({0: batch} for _ in inputs),
            external_data=False,
            verbose=False,
            dynamo=True,
        )
    if program is None:
        raise ExportError("the ONNX exporter gave no program")
    model: onnx.ModelProto = program.model_proto
    _forget_sources(model)
    try:
        onnx.checker.check_model(model, full_check=True)
    except onnx.checker.ValidationError as error:
        raise ExportError(f"the ONNX exporter gave an invalid model: {error}") from error
    return bytes(model.SerializeToString())


def opset_version(model: bytes) -> int:
    """Version of the standard operators that a model uses."""
    opsets = onnx.ModelProto.FromString(model).opset_import
    return int(next(opset.version for opset in opsets if opset.domain in ("", "ai.onnx")))


def check_onnx(
    model: bytes,
    *,
    network: ActorCritic,
    layout: ObservationLayout,
    num_actions: int,
    has_mask: bool,
    seed: int = 0,
) -> OnnxCheck:
    """Compare a model with the policy it was made from, on random observations and masks.

    Args:
        model: What `export_onnx` gave.
        network: The policy, on the CPU.
        layout: How the environment gives observations.
        num_actions: n.
        has_mask: Whether the model takes masks.
        seed: Of observations and masks.

    Raises:
        ExportError: If logits differ by more than rounding, or an action is illegal or not the
            likeliest.
    """
    rng = np.random.default_rng(seed)
    rows = random_observations(layout, NUM_CHECKED, rng=rng)
    feeds: dict[str, npt.NDArray[np.float32] | npt.NDArray[np.bool_]] = {"observation": rows}
    legal = np.ones((NUM_CHECKED, num_actions), dtype=np.bool_)
    if has_mask:
        legal = rng.random((NUM_CHECKED, num_actions)) < 0.5
        legal[np.arange(NUM_CHECKED), rng.integers(num_actions, size=NUM_CHECKED)] = True
        feeds["action_mask"] = legal
    logits, action = make_session(model).run(["logits", "action"], feeds)
    with torch.inference_mode():
        flat = flatten(torch.from_numpy(rows), layout)
        expected = network.logits(flat, torch.from_numpy(legal)).numpy()
    tolerance = LOGITS_TOLERANCE * max(1.0, float(np.abs(expected[legal]).max()))
    difference = float(np.abs(logits - expected)[legal].max())
    if not difference <= tolerance:
        raise ExportError(f"logits must agree within {tolerance:.1e}, differ by {difference:.1e}")
    if not (logits[~legal] == np.finfo(np.float32).min).all():
        raise ExportError("logits of illegal actions must be at float32's minimum")
    chosen = expected[np.arange(NUM_CHECKED), action]
    # Of equals within rounding either may be chosen.
    if not (chosen >= expected.max(axis=1) - tolerance).all():
        raise ExportError("the graph's action must be the policy's likeliest legal one")
    return OnnxCheck(observations=NUM_CHECKED, max_logit_difference=difference)


def _forget_sources(model: onnx.ModelProto) -> None:
    """Drop the exporter's notes: they hold stack traces with the paths of this machine."""
    graph = model.graph
    parts = (*graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer)
    for part in (model, graph, *parts):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's remarks about its own internals from the user."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
