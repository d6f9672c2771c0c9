"""Leaves of a nested space, its parts that are no Dict or Tuple, and their places in a flat row.

Torch-free.

Tests: `tests/arena/envs/spaces/test_observations.py`, `tests/arena/envs/spaces/test_actions.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from arena.environment_spec import SpaceJson
from arena.errors import ConfigError

SUPPORTED = "Box, Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple of these, are"

Keys = tuple[str | int, ...]
"""Keys that lead from a nested value to a part, one after the other."""

Nest = int | dict[str, Any] | tuple[Any, ...]
"""Nesting of leaves: the index of a leaf, or nests by the keys of a Dict or in a Tuple."""


def bounds(space: SpaceJson) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the lowest and highest value of each number of a Box, flattened. float64 [size]."""
    shape = tuple(cast("list[int]", space["shape"]))
    # astype also converts text such as "inf".
    low, high = (np.asarray(space[name]).astype(np.float64) for name in ("low", "high"))
    return np.broadcast_to(low, shape).reshape(-1), np.broadcast_to(high, shape).reshape(-1)


LeafKind = Literal["Box", "Discrete", "MultiDiscrete", "MultiBinary"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """Space that is no Dict or Tuple, and its place in a row.

    Attributes:
        keys: Keys that lead from the whole value to this part.
        kind: Kind of space.
        shape: Shape of a value from the environment; () for Discrete.
        dtype: Dtype of a value from the environment.
        offset: Place of its first number in the row.
        size: Number of its numbers in the row.
        low: Lower bound of all its numbers.
        high: Upper bound of all its numbers.
        choices: Numbers of choices of its categories, in order; none for Box.
        starts: Number of each category's first choice in the environment.
    """

    keys: Keys
    kind: LeafKind
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    size: int
    low: float
    high: float
    choices: tuple[int, ...] = ()
    starts: tuple[int, ...] = ()

    @property
    def path(self) -> tuple[str, ...]:
        """Keys as names: elements of a Tuple are "0", "1" and so on."""
        return tuple(str(key) for key in self.keys)

    @property
    def is_box(self) -> bool:
        """Whether the leaf holds numbers, not choices."""
        return self.kind == "Box"

    @property
    def place(self) -> slice:
        """Slice of the leaf in a row."""
        return slice(self.offset, self.offset + self.size)

    def select(self, value: Any) -> Any:  # noqa: ANN401
        """Return the leaf's part of a nested value."""
        for key in self.keys:
            value = value[key]
        return value


def leaf_spaces(space: SpaceJson, keys: Keys = ()) -> Iterator[tuple[Keys, SpaceJson]]:
    """Yield the leaves of a described space: those of a Dict by name, whatever their order there.

    Raises:
        ConfigError: If a kind of space is not supported.
    """
    match space["kind"]:
        case "Dict":
            members = cast("Mapping[str, SpaceJson]", space["spaces"])
            # By name: rows must not depend on the order in which the keys were written.
            for name in sorted(members):
                yield from leaf_spaces(members[name], (*keys, name))
        case "Tuple":
            for index, member in enumerate(cast("Sequence[SpaceJson]", space["spaces"])):
                yield from leaf_spaces(member, (*keys, index))
        case "Box" | "Discrete" | "MultiDiscrete" | "MultiBinary":
            yield keys, space
        case kind:
            raise ConfigError(f"space {kind} is not supported: {SUPPORTED}")


def nest_of(space: SpaceJson, count: Iterator[int]) -> Nest:
    """Return the nesting of a described space's leaves, numbered by ``count``."""
    match space["kind"]:
        case "Dict":
            members = cast("Mapping[str, SpaceJson]", space["spaces"])
            # The order of `leaf_spaces`, so that the numbers are indices of its leaves.
            return {name: nest_of(members[name], count) for name in sorted(members)}
        case "Tuple":
            spaces = cast("Sequence[SpaceJson]", space["spaces"])
            return tuple(nest_of(member, count) for member in spaces)
    return next(count)


def nested(nest: Nest, values: Sequence[Any]) -> Any:  # noqa: ANN401
    """Return the values of the leaves, nested as their space is."""
    if isinstance(nest, int):
        return values[nest]
    if isinstance(nest, dict):
        return {name: nested(member, values) for name, member in nest.items()}
    return tuple(nested(member, values) for member in nest)


def make_leaf(keys: Keys, space: SpaceJson, *, offset: int, one_hot: bool) -> Leaf:
    """Lay out a leaf.

    Args:
        keys: Keys that lead to it.
        space: Description of its space.
        offset: Place of its first number in the row.
        one_hot: Whether a choice is a one-hot; else it is one number.
    """
    if space["kind"] == "Box":
        shape = tuple(cast("list[int]", space["shape"]))
        low, high = bounds(space)
        return Leaf(
            keys=keys,
            kind="Box",
            shape=shape,
            dtype=np.dtype(cast(str, space["dtype"])),
            offset=offset,
            size=math.prod(shape),
            # The initial values let a Box without numbers pass.
            low=float(low.min(initial=math.inf)),
            high=float(high.max(initial=-math.inf)),
        )
    choices, starts, shape, dtype = _choices(space)
    return Leaf(
        keys=keys,
        kind=cast(LeafKind, space["kind"]),
        shape=shape,
        dtype=dtype,
        offset=offset,
        # A bit of a MultiBinary is a number already: one column, not two.
        size=sum(choices) if one_hot and space["kind"] != "MultiBinary" else len(choices),
        low=min(starts, default=0),
        high=max((s + n - 1 for s, n in zip(starts, choices, strict=True)), default=0),
        choices=choices,
        starts=starts,
    )


def _choices(
    space: SpaceJson,
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], np.dtype[Any]]:
    """Return choices, starts, shape and dtype."""
    if space["kind"] == "Discrete":
        numbers, starts = (cast(int, space["n"]),), (cast(int, space["start"]),)
        return numbers, starts, (), np.dtype(np.int64)
    if space["kind"] == "MultiBinary":
        shape = tuple(cast("list[int]", space["shape"]))
        size = math.prod(shape)
        return (2,) * size, (0,) * size, shape, np.dtype(np.int8)
    nvec, start = np.asarray(space["nvec"]), np.asarray(space["start"])
    dtype = np.dtype(cast(str, space["dtype"]))
    return tuple(nvec.reshape(-1).tolist()), tuple(start.reshape(-1).tolist()), nvec.shape, dtype
