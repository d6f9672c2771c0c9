"""Spaces as plain data, and observations as flat rows.

Torch-free. Shapes: N rows, F features of a flattened observation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import numpy.typing as npt

from arena.envs.spec import SpaceJson
from arena.errors import ConfigError, EnvironmentFault

if TYPE_CHECKING:
    import torch

SUPPORTED = "Box and Discrete are"
NUMERIC_KINDS = "biuf"

ACCEPTED_KINDS: Mapping[str, str] = {"f": "fiub", "i": "iub", "u": "iub", "b": "b"}
"""Which kinds of dtype may arrive where a space has declared one: none that lose a fraction."""


def describe(space: object) -> dict[str, object]:
    """Write a space as JSON: ``kind``, and what determines it.

    Bounds of a Box are one number where all are equal, else nested lists; infinite ones are the
    strings ``inf`` and ``-inf``, which JSON has no numbers for.

    Raises:
        ConfigError: If it is neither a Box of numbers nor Discrete.
    """
    from gymnasium.spaces import Box, Discrete

    if isinstance(space, Discrete):
        return {"kind": "Discrete", "n": int(space.n), "start": int(space.start)}
    if not isinstance(space, Box):
        raise ConfigError(f"{_shown(space)} is not supported yet: {SUPPORTED}")
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


def _shown(space: object) -> str:
    text = " ".join(str(space).split())
    return text if len(text) <= 200 else f"{text[:197]}..."


def _bound(values: npt.NDArray[Any]) -> object:
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
    """Number of actions of a described action space.

    Raises:
        ConfigError: If it is not Discrete.
    """
    _require_discrete(space)
    return cast(int, space["n"])


def first_action(space: SpaceJson) -> int:
    """What a described action space calls action 0.

    Raises:
        ConfigError: If it is not Discrete.
    """
    _require_discrete(space)
    return cast(int, space["start"])


def _require_discrete(space: SpaceJson) -> None:
    if space["kind"] != "Discrete":
        raise ConfigError(f"action space {dict(space)} is not supported yet: Discrete is")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationLayout:
    """How observations of one space become rows of F numbers, and rows observations.

    Attributes:
        kind: Box: flattened. Discrete: one-hot.
        size: F.
        shape: Of an observation as the environment gives it; () for Discrete.
        dtype: Of an observation as the environment gives it.
        start: The lowest value of Discrete; 0 for Box.
    """

    kind: Literal["Box", "Discrete"]
    size: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    start: int = 0

    @classmethod
    def from_json(cls, space: SpaceJson) -> ObservationLayout:
        """Read what `describe` wrote.

        Raises:
            ConfigError: If it is of another kind.
        """
        match space["kind"]:
            case "Box":
                shape = tuple(cast("list[int]", space["shape"]))
                dtype = np.dtype(cast(str, space["dtype"]))
                return cls(kind="Box", size=math.prod(shape), shape=shape, dtype=dtype)
            case "Discrete":
                return cls(
                    kind="Discrete",
                    size=cast(int, space["n"]),
                    shape=(),
                    dtype=np.dtype(np.int64),
                    start=cast(int, space["start"]),
                )
            case kind:
                raise ConfigError(f"observation space {kind} is not supported yet: {SUPPORTED}")

    def flatten_into(self, row: npt.NDArray[np.float32], observation: object) -> None:
        """Copy an observation into a row.

        Args:
            row: Written. float32 [F].
            observation: As the environment gives it.

        Raises:
            EnvironmentFault: If its shape, kind of dtype or values are not the space's.
        """
        values = observation if isinstance(observation, np.ndarray) else np.asarray(observation)
        kind = values.dtype.kind
        if values.shape != self.shape:
            raise EnvironmentFault(
                f"an observation must have shape {self.shape}, got {values.shape}"
            )
        if kind not in ACCEPTED_KINDS[self.dtype.kind]:
            raise EnvironmentFault(
                f"an observation must have dtype {self.dtype.name}, got {values.dtype}"
            )
        if self.kind == "Discrete":
            self._set_one_hot(row, int(values))
            return
        if kind != "f":
            row[:] = values.reshape(-1)
            return
        # What float32 cannot hold becomes infinite here, and is refused as such.
        with np.errstate(over="ignore"):
            row[:] = values.reshape(-1)
        if not np.isfinite(row).all():
            at = int(np.isfinite(row).argmin())
            raise EnvironmentFault(
                f"an observation must be finite in float32, got {values.reshape(-1)[at]} "
                f"at position {at} of {self.size}"
            )

    def _set_one_hot(self, row: npt.NDArray[np.float32], value: int) -> None:
        index = value - self.start
        if not 0 <= index < self.size:
            raise EnvironmentFault(
                f"an observation must be in [{self.start}, {self.start + self.size}), got {value}"
            )
        row[:] = 0.0
        row[index] = 1.0

    def to_environment(self, flat: torch.Tensor | npt.NDArray[np.float32]) -> npt.NDArray[Any]:
        """Undo the flattening: the environment's own shape and dtype, with a leading axis of N.

        Args:
            flat: On the CPU. float32 [N, F].
        """
        rows = np.asarray(flat)
        if self.kind == "Discrete":
            return np.asarray(rows.argmax(axis=1) + self.start, dtype=self.dtype)
        values = rows.reshape(len(rows), *self.shape)
        if self.dtype.kind in "iu":
            values = np.rint(values)
        return values.astype(self.dtype)
