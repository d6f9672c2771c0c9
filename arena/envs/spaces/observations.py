"""Spaces of environments as plain data, and observations as flat rows.

The layout of a row is `arena.spaces.ObservationLayout`. Observations are checked here, and errors
are faults of the environment. Torch-free. Shapes: F numbers of a flattened observation.

Tests: `tests/arena/envs/spaces/test_observations.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from arena.environment_spec import SpaceJson
from arena.errors import ConfigError, EnvironmentFault
from arena.spaces import SUPPORTED, UINT8, Leaf, ObservationLayout

NUMERIC_KINDS = "biuf"

ACCEPTED_KINDS: Mapping[str, str] = {"f": "fiub", "i": "iub", "u": "iub", "b": "b"}
"""Accepted kinds of dtype, by the kind that a space declares; none that loses fractions."""

_REWARD, _SEEN = "1e12", "1e9"
LARGEST_REWARD, LARGEST_SEEN = float(_REWARD), float(_SEEN)
"""Largest absolute values of a reward, and of a number of an observation or state.

Training squares and multiplies them in float32, which ends at 3.4e38. At these bounds PPO still
learns, even without normalizers; observations of 1e12 break it. Larger numbers point to a mistake
in the environment, so they are refused where they come in.
"""

BOUNDED_REWARD = f"finite and at most {_REWARD} in size"
BOUNDED_SEEN = f"finite and at most {_SEEN} in size"
"""The rules, in messages."""


def describe(space: object) -> dict[str, object]:
    """Describe a space as JSON: ``kind``, and everything that determines it.

    Bounds of a Box are one number where all are equal, else nested lists; infinite ones are the
    strings ``inf`` and ``-inf``, as JSON has no such numbers.

    Raises:
        ConfigError: If Arena cannot train on the space.
    """
    # gymnasium is imported here, because layouts are also made where it is not installed.
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
    # Equal bounds are one number, because the bounds of a picture would fill pages.
    if values.size and (values == values.flat[0]).all():
        return _plain(values.flat[0].item())
    return _plain(values.tolist())


def _plain(value: object) -> object:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def discrete_actions(space: SpaceJson) -> range:
    """Return the actions of a described action space.

    Raises:
        ConfigError: If it is not Discrete.
    """
    if space["kind"] != "Discrete":
        raise ConfigError(f"action space {dict(space)} is not supported here: Discrete is")
    number, first = (cast(int, space[key]) for key in ("n", "start"))
    return range(first, first + number)


def flatten_into(layout: ObservationLayout, row: npt.NDArray[Any], observation: object) -> None:
    """Copy an observation into a row.

    Args:
        layout: Layout of the row.
        row: Row to fill. ``dtype`` [F].
        observation: Observation from the environment.

    Raises:
        EnvironmentFault: If its shape, kind of dtype or values are not in the space.
    """
    for leaf in layout.leaves:
        flatten_leaf(leaf, row[leaf.place], part_of(leaf, observation))


def is_bounded(number: object) -> bool:
    """Return whether an object is a finite number that may be a reward; arrays are not."""
    try:
        # Any comparison with NaN is false.
        in_bounds = bool(-LARGEST_REWARD <= cast(float, number) <= LARGEST_REWARD)
    except (TypeError, ValueError):
        return False
    return in_bounds and not getattr(number, "shape", ())


def reward_rule(number: object) -> str:
    """Return the rule that a refused reward breaks (`is_bounded`)."""
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
    # An environment may return a list or a number where the space has an array.
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
        # Only rows of bytes can fail here; see `fits`.
        at = int(((flat < 0) | (flat > 255)).argmax())
        raise EnvironmentFault(f"{named(leaf)} must be in [0, 255], got {flat[at]}")
    if not are_bounded(flat):
        # Any comparison with NaN is false.
        at = int((np.abs(flat) <= LARGEST_SEEN).argmin())
        raise EnvironmentFault(
            f"{named(leaf)} must be {BOUNDED_SEEN}, got {flat[at]} at position {at} of {leaf.size}"
        )
    row[:] = flat


def are_bounded(values: npt.NDArray[Any]) -> bool:
    """Return whether all numbers are finite and within the limit."""
    # Smaller integer types cannot exceed the limit.
    if values.size == 0 or (values.dtype.kind != "f" and values.dtype.itemsize < 8):
        return True
    # NaN propagates to max and min, and any comparison with it is false. The comparison uses
    # Python numbers, because float16 cannot hold the bound.
    return bool(values.max().item() <= LARGEST_SEEN and values.min().item() >= -LARGEST_SEEN)


def fits(values: npt.NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Return whether values fit a row of bytes; rows of floats take any values."""
    if dtype != UINT8 or values.dtype == UINT8 or values.size == 0:
        return True
    return bool(values.min() >= 0 and values.max() <= 255)


def _set_one_hots(leaf: Leaf, row: npt.NDArray[Any], chosen: list[int]) -> None:
    # Rows are reused, so the previous decision's one-hots are cleared.
    row[:] = 0.0
    first = 0
    for value, start, number in zip(chosen, leaf.starts, leaf.choices, strict=True):
        if not start <= value < start + number:
            raise EnvironmentFault(
                f"{named(leaf)} must be in [{start}, {start + number}), got {value}"
            )
        row[first + int(value) - start] = 1.0
        first += number
