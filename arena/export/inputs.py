"""Inputs of a graph: each part of an observation as the environment gives it, as float32.

An observation that is no Dict or Tuple is the input ``observation``; of others each part is an
input ``observation.<key>``, nested keys joined by dots. ``agent_id``, int64 [N], is the place of
the deciding agent among those of the population. ``state_in``, float32 [N, H], is the recurrent
state: zeros at the start of an episode, then ``state_out`` of the agent's previous decision.
Shapes: N rows, F numbers of a flattened observation, k categories of a part, n choices of all of
them.

Tests: `tests/arena/export/test_spaces.py`, `tests/arena/export/test_onnx.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from arena.envs.spaces.agent_id import is_agent_id
from arena.envs.spaces.leaves import Leaf
from arena.envs.spaces.observations import UINT8, ObservationLayout, unflattened
from arena.errors import ExportError

OBSERVATION = "observation"
AGENT_ID = "agent_id"
STATE_IN = "state_in"
ACTION_MASK = "action_mask"

Feeds = dict[str, npt.NDArray[Any]]
"""Arrays by the names of a graph's inputs."""


def input_names(layout: ObservationLayout) -> tuple[str, ...]:
    """Return the name of each leaf's input.

    Raises:
        ExportError: If two are equal, because of dots in the keys of a Dict.
    """
    return unique_names(
        [
            AGENT_ID if is_agent_id(leaf) else ".".join((OBSERVATION, *leaf.path))
            for leaf in layout.leaves
        ]
    )


def unique_names(names: list[str]) -> tuple[str, ...]:
    """Check that names of inputs or outputs differ, and return them.

    Raises:
        ExportError: If two are equal.
    """
    for name in names:
        if names.count(name) > 1:
            raise ExportError(f"two parts of a space would both be {name}: keys must have no dots")
    return tuple(names)


class Flatten(nn.Module):
    """Module that flattens a graph's inputs to rows [N, F], as learners flatten observations.

    Args:
        layout: Layout of the rows.
    """

    def __init__(self, layout: ObservationLayout) -> None:
        super().__init__()
        self._leaves = layout.leaves
        self._names = input_names(layout)
        self._one_hots = nn.ModuleList(
            nn.Identity() if leaf.kind in ("Box", "MultiBinary") else _OneHots(leaf)
            for leaf in layout.leaves
        )

    def forward(self, feeds: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Flatten inputs to float32 [N, F]."""
        parts = []
        for name, leaf, one_hots in zip(self._names, self._leaves, self._one_hots, strict=True):
            # As float32 in any case: the network scales images itself.
            values = feeds[name].float()
            # A number without axes, [N], becomes a column [N, 1].
            parts.append(one_hots(values.flatten(1) if leaf.shape else values.unsqueeze(1)))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


class _OneHots(nn.Module):
    """Module from choices float32 [N, k] to as many one-hots side by side, float32 [N, n]."""

    _category: torch.Tensor
    _choice: torch.Tensor

    def __init__(self, leaf: Leaf) -> None:
        super().__init__()
        choices = zip(leaf.starts, leaf.choices, strict=True)
        # Column j of the one-hots is 1 where the number at category[j] is choice[j].
        known = [(at, start + c) for at, (start, n) in enumerate(choices) for c in range(n)]
        category, choice = [at for at, _ in known], [number for _, number in known]
        self.register_buffer("_category", torch.tensor(category, dtype=torch.int64))
        self.register_buffer("_choice", torch.tensor(choice, dtype=torch.float32))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return (values.index_select(1, self._category) == self._choice).float()


def feeds_of(rows: torch.Tensor, layout: ObservationLayout) -> Feeds:
    """Undo `Flatten`.

    Args:
        rows: Rows on the CPU. [N, F].
        layout: Layout of the rows.
    """
    flat = rows.numpy()
    return {
        name: unflattened(leaf, flat[:, leaf.place]).astype(_dtype(leaf))
        for name, leaf in zip(input_names(layout), layout.leaves, strict=True)
    }


def random_feeds(layout: ObservationLayout, num_rows: int, *, rng: np.random.Generator) -> Feeds:
    """Return random observations as inputs of a graph."""
    return {
        name: _random(leaf, num_rows, rng=rng).astype(_dtype(leaf))
        for name, leaf in zip(input_names(layout), layout.leaves, strict=True)
    }


def _random(leaf: Leaf, num_rows: int, *, rng: np.random.Generator) -> npt.NDArray[Any]:
    if leaf.is_box:
        shape = (num_rows, *leaf.shape)
        is_bytes = leaf.dtype == UINT8
        return rng.integers(256, size=shape) if is_bytes else rng.normal(scale=2.0, size=shape)
    starts, choices = np.array(leaf.starts, dtype=np.int64), np.array(leaf.choices, dtype=np.int64)
    drawn = rng.integers(starts, starts + choices, size=(num_rows, len(choices)))
    return drawn.reshape(num_rows, *leaf.shape)


def _dtype(leaf: Leaf) -> type[np.generic]:
    # What an environment shows is float32; the agent id is Arena's own.
    return np.int64 if is_agent_id(leaf) else np.float32
