"""How an observation enters the graph, from the description of its space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from arena.envs.spec import SpaceJson
from arena.errors import ExportError


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationInput:
    """How one observation enters the graph.

    Attributes:
        shape: As the environment gives it.
        categories: (start, n) of each number that becomes a one-hot vector: one for a Discrete
            space. Empty: the observation is numbers, which are flattened.
    """

    shape: tuple[int, ...]
    categories: tuple[tuple[int, int], ...] = ()

    def random(self, num_rows: int, rng: np.random.Generator) -> npt.NDArray[np.float32]:
        """Random observations. float32 [num_rows, *shape]."""
        if not self.categories:
            return rng.normal(scale=2.0, size=(num_rows, *self.shape)).astype(np.float32)
        columns = [rng.integers(start, start + n, num_rows) for start, n in self.categories]
        return np.stack(columns, axis=1).reshape(num_rows, *self.shape).astype(np.float32)


def observation_input(space: SpaceJson) -> ObservationInput:
    """Read the description of an observation space.

    Raises:
        ExportError: If the graph cannot take observations of that kind.
    """
    match space["kind"]:
        case "Box" | "MultiBinary":
            return ObservationInput(shape=tuple(cast("list[int]", space["shape"])))
        case "Discrete":
            category = (cast(int, space["start"]), cast(int, space["n"]))
            return ObservationInput(shape=(), categories=(category,))
        case "MultiDiscrete":
            starts, sizes = cast("list[int]", space["start"]), cast("list[int]", space["nvec"])
            categories = tuple(zip(starts, sizes, strict=True))
            return ObservationInput(shape=(len(sizes),), categories=categories)
        case kind:
            raise ExportError(f"observations must be numbers or categories, got {kind}")


def action_start(space: SpaceJson) -> int:
    """The first action of a Discrete space, as the environment counts."""
    return cast(int, space["start"])
