"""A policy's graph in the ONNX format, and its comparison with the policy.

Tests: `tests/arena/export/test_onnx.py`.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import torch

from arena.errors import ExportError
from arena.export.champion import make_session
from arena.export.graph import (
    ACTION_MASK,
    LOGITS,
    MEAN,
    STATE_IN,
    Feeds,
    PolicyGraph,
    TorchSession,
    action_names,
    output_names,
    random_feeds,
)
from arena.networks.actor_critic import ActorCritic
from arena.spaces import ActionLayout, ObservationLayout

SMALLEST = np.finfo(np.float32).min

# The exporter writes this version without a conversion; it is the lowest that graphs need, so that
# they run on old runtimes.
OPSET = 18
IR_VERSION = 8
LEAST_ONNXRUNTIME = "1.14"
"""First release of onnxruntime that reads both (its table of ONNX versions)."""

NUM_CHECKED = 64
"""Random observations on which a graph is compared with its policy."""

TOLERANCE = 1e-4
"""Tolerance relative to the largest number (at least 1): runtimes add up in different orders."""


def export_onnx(network: ActorCritic, *, layout: ObservationLayout, has_mask: bool) -> bytes:
    """Write a policy as an ONNX model with its weights inline.

    Args:
        network: Policy's network, on the CPU.
        layout: Layout of its observations.
        has_mask: Whether the environment has action masks.

    Raises:
        ExportError: If the exporter returns no valid model.
    """
    # Two rows are needed, because the exporter would treat a batch of one as a constant.
    feeds = _random_feeds(network, layout, 2, has_mask=has_mask, seed=0)
    inputs = {name: torch.from_numpy(values) for name, values in feeds.items()}
    batch = torch.export.Dim("batch")
    graph = PolicyGraph(network, layout).eval()
    with _quiet():
        program = torch.onnx.export(
            graph,
            kwargs={"feeds": inputs},
            input_names=list(inputs),
            output_names=list(output_names(network)),
            dynamic_shapes={"feeds": {name: {0: batch} for name in inputs}},
            # The graph must be one file, because the card has one digest for it.
            external_data=False,
            verbose=False,
            dynamo=True,
            opset_version=OPSET,
        )
    if program is None:
        raise ExportError("the ONNX exporter gave no program")
    model: onnx.ModelProto = program.model_proto
    _forget_sources(model)
    model.ir_version = IR_VERSION
    if opset_version(model) > OPSET:
        raise ExportError(f"the graph needs opset {opset_version(model)}, more than {OPSET}")
    try:
        onnx.checker.check_model(model, full_check=True)
    except onnx.checker.ValidationError as error:
        raise ExportError(f"the ONNX exporter gave an invalid model: {error}") from error
    return bytes(model.SerializeToString())


def _random_feeds(
    network: ActorCritic, layout: ObservationLayout, num_rows: int, *, has_mask: bool, seed: int
) -> Feeds:
    """Return random observations, states, and masks with a legal choice in every category."""
    # A policy needs a legal choice in each category, and independent draws may leave none, so one
    # drawn choice is made legal.
    rng, action = np.random.default_rng(seed), network.action
    feeds = random_feeds(layout, num_rows, rng=rng)
    if network.state_size:
        feeds[STATE_IN] = rng.uniform(-1.0, 1.0, (num_rows, network.state_size)).astype(np.float32)
    if has_mask:
        legal = rng.random((num_rows, action.num_logits)) < 0.5
        # These are the first columns of each category.
        first = np.cumsum([0, *action.branches[:-1]])
        chosen = first + rng.integers(action.branches, size=(num_rows, len(action.branches)))
        legal[np.arange(num_rows)[:, None], chosen] = True
        feeds[ACTION_MASK] = legal
    return feeds


def opset_version(model: onnx.ModelProto) -> int:
    """Return the version of the standard operators that a model uses."""
    # A model may import operators of several domains; the standard one has two names.
    opsets = model.opset_import
    return int(next(opset.version for opset in opsets if opset.domain in ("", "ai.onnx")))


def check_onnx(
    model: bytes,
    *,
    network: ActorCritic,
    layout: ObservationLayout,
    has_mask: bool,
    seed: int = 0,
) -> float:
    """Compare a model with its policy, on `NUM_CHECKED` random observations and masks; return the
    largest difference of a legal choice's logit, a number or a value.

    Args:
        model: Output of `export_onnx`.
        network: Policy's network, on the CPU.
        layout: Layout of its observations.
        has_mask: Whether the model takes masks.
        seed: Seed of observations and masks.

    Raises:
        ExportError: If parameters, values or states differ by more than rounding, or the action is
            not the policy's greedy one, or illegal.
    """
    action = network.action
    feeds = _random_feeds(network, layout, NUM_CHECKED, has_mask=has_mask, seed=seed)
    names = output_names(network)
    outputs = dict(zip(names, make_session(model).run(list(names), feeds), strict=True))
    expected = _expected(network, feeds, layout=layout)
    difference = max(_difference(name, outputs[name], values) for name, values in expected.items())
    _check_actions(outputs, expected, action=action)
    return difference


def _expected(network: ActorCritic, feeds: Feeds, *, layout: ObservationLayout) -> Feeds:
    """Return all outputs but the greedy action, by name."""
    session = TorchSession(network, layout=layout, has_mask=ACTION_MASK in feeds)
    names = [node.name for node in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def _difference(name: str, found: npt.NDArray[Any], expected: npt.NDArray[Any]) -> float:
    """Return the largest difference among legal choices."""
    legal = expected > SMALLEST
    difference = float(np.abs(found - expected)[legal].max(initial=0.0))
    tolerance = _tolerance(expected[legal])
    # `not <=` also rejects NaN, which `>` would not.
    if not difference <= tolerance:
        raise ExportError(f"{name} must agree within {tolerance:.1e}, differ by {difference:.1e}")
    if not (found[~legal] == SMALLEST).all():
        raise ExportError(f"{name} of illegal actions must be at float32's minimum")
    return difference


def _check_actions(outputs: Feeds, expected: Feeds, *, action: ActionLayout) -> None:
    """Check that actions are greedy; of choices equal within rounding either is accepted."""
    in_units = _numbers_in_units(expected, action=action)
    first = 0
    for name, leaf in zip(action_names(action), action.leaves, strict=True):
        given = outputs[name]
        if leaf.is_box:
            values = np.asarray(leaf.select(in_units), dtype=np.float64)
            # Integers are rounded: near a half, the smallest difference becomes 1.
            tolerance = _tolerance(values) + (leaf.dtype.kind in "iub")
            if not (np.abs(given - values) <= tolerance).all():
                raise ExportError(f"{name} must be the policy's mean, within its bounds")
            continue
        # [N, ...] -> a column [N] for each category, in the order of the logits
        for chosen, number in zip(given.reshape(len(given), -1).T, leaf.choices, strict=True):
            logits = expected[LOGITS][:, first : first + number]
            # The limit is max_a z_a less the tolerance: equal choices may be swapped by rounding.
            best = logits.max(axis=1) - _tolerance(logits[logits > SMALLEST])
            if not (np.take_along_axis(logits, chosen[:, None], axis=1)[:, 0] >= best).all():
                raise ExportError(f"the graph's {name} must be the policy's likeliest legal one")
            first += number


def _numbers_in_units(expected: Feeds, *, action: ActionLayout) -> object:
    """Return the environment's actions with the policy's means; of all choices the first."""
    rows = np.zeros((NUM_CHECKED, *action.row_shape), dtype=action.row_dtype)
    if action.num_continuous:
        rows[:, len(action.branches) :] = expected[MEAN]
    actions: object = action.to_environment(rows)
    return actions


def _tolerance(values: npt.NDArray[Any]) -> float:
    # The tolerance is relative, because float32 has a fixed number of digits, not of decimals.
    return TOLERANCE * max(1.0, float(np.abs(values).max(initial=0.0)))


def _forget_sources(model: onnx.ModelProto) -> None:
    """Drop the exporter's notes: they hold stack traces with the paths of this machine."""
    graph = model.graph
    parts = (*graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer)
    for part in (model, graph, *parts):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the exporter's remarks about its own internals."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
