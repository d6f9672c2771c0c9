"""Spaces as plain data, and observations as flat rows.

Torch-free. Shapes: N rows, F numbers of a flattened observation.

Tests: `tests/arena/envs/spaces/test_agent_id_wrapper.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from arena.environment_spec import SpaceJson
from arena.envs.spaces.leaves import SUPPORTED, Leaf, Nest, leaf_spaces, make_leaf, nest_of, nested
from arena.errors import ConfigError, EnvironmentFault

if TYPE_CHECKING:
    import torch

NUMERIC_KINDS = "biuf"

ACCEPTED_KINDS: Mapping[str, str] = {"f": "fiub", "i": "iub", "u": "iub", "b": "b"}
"""Accepted kinds of dtype by the kind that a space declares: none that lose a fraction."""

UINT8 = np.dtype(np.uint8)
FLOAT32 = np.dtype(np.float32)

_REWARD, _SEEN = "1e12", "1e9"
LARGEST_REWARD, LARGEST_SEEN = float(_REWARD), float(_SEEN)
"""Largest absolute values of a reward, and of a number of an observation or state.

Training squares and multiplies them in float32, which ends at 3.4e38. At these bounds PPO learns
on, without normalizers as well; observations of 1e12 break it. Larger numbers say
something of an environment and nothing of a policy, so they are refused where they come in.
"""

BOUNDED_REWARD = f"finite and at most {_REWARD} in size"
BOUNDED_SEEN = f"finite and at most {_SEEN} in size"
"""The rules, in messages."""

AGENT_ID = ("agent id",)
"""Name of the leaf; no environment uses it."""


def describe(space: object) -> dict[str, object]:
    """Describe a space as JSON: ``kind``, and everything that determines it.

    Bounds of a Box are one number where all are equal, else nested lists; infinite ones are the
    strings ``inf`` and ``-inf``, as JSON has no such numbers.

    Raises:
        ConfigError: If Arena cannot train on the space.
    """
    # Imported here: layouts are made from plain data where gymnasium is not needed.
    from gymnasium import spaces

    match space:
        case spaces.Discrete():
            return {"kind": "Discrete", "n": int(space.n), "start": int(space.start)}
        case spaces.Box():
            return _box(space)
        case spaces.MultiDiscrete():
            return {
                "kind": "MultiDiscrete",
                "nvec": space.nvec.tolist(),
                "start": space.start.tolist(),
                "dtype": np.dtype(space.dtype).name,
            }
        case spaces.MultiBinary():
            return {"kind": "MultiBinary", "shape": [int(length) for length in space.shape]}
        case spaces.Dict():
            return {"kind": "Dict", "spaces": _members(space.spaces)}
        case spaces.Tuple():
            return {"kind": "Tuple", "spaces": [describe(member) for member in space.spaces]}
    raise ConfigError(f"{_shown(space)} is not supported: {SUPPORTED}")


def _box(space: Any) -> dict[str, object]:  # noqa: ANN401
    dtype = np.dtype(space.dtype)
    if dtype.kind not in NUMERIC_KINDS:
        raise ConfigError(f"{_shown(space)} is not supported: a Box must hold numbers")
    return {
        "kind": "Box",
        "shape": [int(length) for length in space.shape],
        "dtype": dtype.name,
        "low": _bound(space.low),
        "high": _bound(space.high),
    }


def _members(spaces: Mapping[Any, object]) -> dict[str, object]:
    unnamed = [key for key in spaces if not isinstance(key, str)]
    if unnamed:
        raise ConfigError(f"the keys of a Dict must be strings, got {unnamed[0]!r}")
    return {key: describe(member) for key, member in spaces.items()}


def _shown(space: object) -> str:
    text = " ".join(str(space).split())
    name = type(space).__name__
    text = text if name in text else f"{name} {text}"
    return text if len(text) <= 200 else f"{text[:197]}..."


def _bound(values: npt.NDArray[Any]) -> object:
    # One number for all: the bounds of a picture would fill pages.
    if values.size and (values == values.flat[0]).all():
        return _plain(values.flat[0].item())
    return _plain(values.tolist())


def _plain(value: object) -> object:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def num_actions(space: SpaceJson) -> int:
    """Return the number of actions of a described action space.

    Raises:
        ConfigError: If it is not Discrete.
    """
    _require_discrete(space)
    return cast(int, space["n"])


def first_action(space: SpaceJson) -> int:
    """Return the number of a described action space's first action.

    Raises:
        ConfigError: If it is not Discrete.
    """
    _require_discrete(space)
    return cast(int, space["start"])


def _require_discrete(space: SpaceJson) -> None:
    if space["kind"] != "Discrete":
        raise ConfigError(f"action space {dict(space)} is not supported here: Discrete is")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationLayout:
    """Conversion between observations of one space and rows of F numbers.

    Leaf after leaf: Box flattened, Discrete one-hot, MultiDiscrete one-hots side by side,
    MultiBinary as zeros and ones.

    Attributes:
        leaves: Parts of an observation, in the order of a row.
        size: F.
        dtype: Dtype of rows: uint8 where every leaf is a Box of uint8, else float32.
        nest: Nesting of the leaves in an observation.
    """

    leaves: tuple[Leaf, ...]
    size: int
    dtype: np.dtype[Any]
    nest: Nest = field(hash=False)

    @classmethod
    def from_json(cls, space: SpaceJson) -> ObservationLayout:
        """Make a layout from the output of `describe`.

        Raises:
            ConfigError: If a kind of space is not supported.
        """
        leaves: list[Leaf] = []
        for keys, member in leaf_spaces(space):
            # Leaf after leaf, without gaps
            end = leaves[-1].offset + leaves[-1].size if leaves else 0
            leaves.append(make_leaf(keys, member, offset=end, one_hot=True))
        # A leaf of another kind needs float32, and a row has one dtype.
        bytes_only = bool(leaves) and all(leaf.is_box and leaf.dtype == UINT8 for leaf in leaves)
        return cls(
            leaves=tuple(leaves),
            size=sum(leaf.size for leaf in leaves),
            dtype=UINT8 if bytes_only else FLOAT32,
            nest=nest_of(space, count()),
        )

    def flatten_into(self, row: npt.NDArray[Any], observation: object) -> None:
        """Copy an observation into a row.

        Args:
            row: Row to fill. ``dtype`` [F].
            observation: Observation from the environment.

        Raises:
            EnvironmentFault: If its shape, kind of dtype or values are not in the space.
        """
        for leaf in self.leaves:
            flatten_leaf(leaf, row[leaf.place], part_of(leaf, observation))

    def to_environment(self, flat: torch.Tensor | npt.NDArray[Any]) -> Any:  # noqa: ANN401
        """Undo the flattening: return the environment's own form, each leaf with a leading axis of
        N.

        Args:
            flat: Rows on the CPU. ``dtype`` [N, F].

        Returns:
            An array, or arrays nested in dictionaries and tuples.
        """
        rows = np.asarray(flat)
        return nested(self.nest, [unflattened(leaf, rows[:, leaf.place]) for leaf in self.leaves])


def is_bounded(number: object) -> bool:
    """Return whether an object is a finite number that may be a reward; an array is none."""
    try:
        # A comparison with NaN is False.
        in_bounds = bool(-LARGEST_REWARD <= cast(float, number) <= LARGEST_REWARD)
    except (TypeError, ValueError):
        return False
    return in_bounds and not getattr(number, "shape", ())


def reward_rule(number: object) -> str:
    """Return the rule that a reward breaks which `is_bounded` refuses."""
    shape = getattr(number, "shape", ())
    return f"one number, not an array of shape {shape}" if shape else BOUNDED_REWARD


def named(leaf: Leaf) -> str:
    """Return the name of an observation's leaf in messages."""
    if not leaf.keys:
        return "an observation"
    return f"an observation's {''.join(f'[{key!r}]' for key in leaf.keys)}"


def part_of(leaf: Leaf, observation: object) -> object:
    """Return one part of a nested observation.

    Raises:
        EnvironmentFault: If it is missing.
    """
    try:
        part: object = leaf.select(observation)
    except (KeyError, IndexError, TypeError):
        raise EnvironmentFault(f"{named(leaf)} must be there, it is not") from None
    return part


def flatten_leaf(leaf: Leaf, row: npt.NDArray[Any], value: object) -> None:
    """Copy one part of an observation into its part of a row.

    Raises:
        EnvironmentFault: If its shape, kind of dtype or values are not in the space.
    """
    # An environment may return a list or a number where a space has an array.
    values = value if isinstance(value, np.ndarray) else np.asarray(value)
    kind = values.dtype.kind
    if values.shape != leaf.shape:
        raise EnvironmentFault(f"{named(leaf)} must have shape {leaf.shape}, got {values.shape}")
    if kind not in ACCEPTED_KINDS[leaf.dtype.kind]:
        raise EnvironmentFault(
            f"{named(leaf)} must have dtype {leaf.dtype.name}, got {values.dtype}"
        )
    flat = values.reshape(-1)
    if leaf.kind in ("Discrete", "MultiDiscrete"):
        _set_one_hots(leaf, row, flat.tolist())
        return
    if not fits(flat, row.dtype):
        # Only rows of bytes can fail here, see `fits`.
        at = int(((flat < 0) | (flat > 255)).argmax())
        raise EnvironmentFault(f"{named(leaf)} must be in [0, 255], got {flat[at]}")
    if not are_bounded(flat):
        # A comparison with NaN is False.
        at = int((np.abs(flat) <= LARGEST_SEEN).argmin())
        raise EnvironmentFault(
            f"{named(leaf)} must be {BOUNDED_SEEN}, got {flat[at]} at position {at} of {leaf.size}"
        )
    row[:] = flat


def are_bounded(values: npt.NDArray[Any]) -> bool:
    """Return whether all numbers are finite and may be seen."""
    # Smaller integers cannot be larger.
    if values.size == 0 or (values.dtype.kind != "f" and values.dtype.itemsize < 8):
        return True
    # NaN is the greatest and the least of all, and no comparison with it holds.
    # As Python's numbers: float16 cannot hold the bound.
    return bool(values.max().item() <= LARGEST_SEEN and values.min().item() >= -LARGEST_SEEN)


def fits(values: npt.NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Return whether values can be written as bytes where rows are bytes; else they
    become floats.
    """
    if dtype != UINT8 or values.dtype == UINT8 or values.size == 0:
        return True
    return bool(values.min() >= 0 and values.max() <= 255)


def _set_one_hots(leaf: Leaf, row: npt.NDArray[Any], chosen: list[int]) -> None:
    # Rows are reused: the one-hots of the last decision are still there.
    row[:] = 0.0
    first = 0
    for value, start, number in zip(chosen, leaf.starts, leaf.choices, strict=True):
        if not start <= value < start + number:
            raise EnvironmentFault(
                f"{named(leaf)} must be in [{start}, {start + number}), got {value}"
            )
        row[first + int(value) - start] = 1.0
        first += number


def unflattened(leaf: Leaf, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return one part of observations as the environment gives it: the inverse of `flatten_leaf`.

    Args:
        leaf: Leaf of the observation space.
        rows: Its part of rows. [N, size].

    Returns:
        Values of shape [N, ...].
    """
    if leaf.kind in ("Discrete", "MultiDiscrete"):
        ends = np.cumsum(leaf.choices)[:-1]
        parts = np.split(rows, ends, axis=1)
        chosen = [part.argmax(axis=1) for part in parts]
        values = np.stack(chosen, axis=1) + np.array(leaf.starts) if chosen else rows
    else:
        # Rows are float32; integers get their dtype back.
        values = np.rint(rows) if leaf.dtype.kind in "iu" else rows
    return values.reshape(len(rows), *leaf.shape).astype(leaf.dtype)


def is_agent_id(leaf: Leaf) -> bool:
    """Return whether a part of a row is an agent id."""
    return leaf.keys == AGENT_ID


def with_agent_id(layout: ObservationLayout, *, num_agents: int) -> ObservationLayout:
    """Return the layout of rows that end with an agent id.

    Args:
        layout: Layout of the rows without it.
        num_agents: Number of agents of the population.
    """
    # A Discrete leaf, as its numbers are a one-hot.
    leaf = Leaf(
        keys=AGENT_ID,
        kind="Discrete",
        shape=(),
        dtype=np.dtype(np.int64),
        # Last in the row: the places of all other leaves stay.
        offset=layout.size,
        size=num_agents,
        low=0,
        high=num_agents - 1,
        choices=(num_agents,),
        starts=(0,),
    )
    return replace(layout, leaves=(*layout.leaves, leaf), size=layout.size + num_agents)
