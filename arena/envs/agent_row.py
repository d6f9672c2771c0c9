"""Where one agent's decisions and last observation go, in one environment of the batch.

This runs once for every decision in Python, so it asks little of each array: one with the shape and
dtype that the last good one had is copied as it is, any other is looked at closely. Whether numbers
are finite and masks allow anything is asked once for the whole batch (`arena.envs.buffers`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from numpy import ndarray

from arena.envs.spaces import ObservationLayout
from arena.errors import EnvironmentFault

FLOAT32_BYTES = 4


class AgentRow:
    """Writes what one agent is told, and knows how far the agent has come in this episode.

    Args:
        agent: For messages.
        column: The agent's index.
        layout: Of its observations.
        mask: Where its masks are.
        asked: Part of ``agent_index``. int64 [1].
        row: Part of the observations. float32 [F].
        mask_row: Part of the masks. bool [n].
        final: Part of the final observations. float32 [F].

    Attributes:
        column: The agent's index.
        has_decided: Whether it was asked in this episode.
        has_ended: Whether its end in this episode is written down.
    """

    __slots__ = (
        "_agent",
        "_asked",
        "_final",
        "_layout",
        "_mask",
        "_mask_dtype",
        "_mask_row",
        "_mask_shape",
        "_row",
        "_shape",
        "_shaped_row",
        "_usual_dtype",
        "column",
        "has_decided",
        "has_ended",
    )

    def __init__(
        self,
        agent: str,
        *,
        column: int,
        layout: ObservationLayout,
        mask: Literal["observation", "info"] | None,
        asked: npt.NDArray[np.int64],
        row: npt.NDArray[np.float32],
        mask_row: npt.NDArray[np.bool_],
        final: npt.NDArray[np.float32],
    ) -> None:
        self._agent = agent
        self.column = column
        self._layout = layout
        self._mask = mask
        self._asked = asked
        self._row = row
        self._mask_row = mask_row
        self._final = final
        self._shape = layout.shape
        self._shaped_row = row.reshape(layout.shape) if layout.kind == "Box" else row
        self._usual_dtype: np.dtype[Any] | None = None
        self._mask_shape = mask_row.shape
        self._mask_dtype: np.dtype[Any] | None = None
        self.begin()

    def begin(self) -> None:
        """A new episode."""
        self.has_decided = False
        self.has_ended = False

    def ask(self, observation: Any, info: Mapping[str, Any] | None) -> None:  # noqa: ANN401
        """Write the agent's decision into its slot.

        Raises:
            EnvironmentFault: If the observation or the mask is not the space's.
        """
        if self._mask == "observation":
            self._mask_row[...] = self._as_mask(observation["action_mask"])
            observation = observation["observation"]
        elif self._mask == "info":
            mask = None if info is None else info.get("action_mask")
            # PettingZoo's masks in info are optional: without one, everything is legal.
            self._mask_row[...] = True if mask is None else self._as_mask(mask)
        if (
            type(observation) is ndarray
            and observation.dtype is self._usual_dtype
            and observation.shape == self._shape
        ):
            self._shaped_row[...] = observation
        else:
            self._write_observation(self._row, observation)
            self._usual_dtype = _copied_as_it_is(observation, layout=self._layout)
        self._asked[0] = self.column
        self.has_decided = True
        self.has_ended = False

    def keep_final(self, observation: Any) -> None:  # noqa: ANN401
        """Write the agent's last observation.

        Raises:
            EnvironmentFault: If there is none, or it is not the space's.
        """
        if observation is None:
            raise EnvironmentFault(
                f"agent {self._agent!r} was truncated and must have a last observation, got None"
            )
        if self._mask == "observation":
            observation = observation["observation"]
        self._write_observation(self._final, observation)

    def _write_observation(self, row: npt.NDArray[np.float32], observation: object) -> None:
        try:
            self._layout.flatten_into(row, observation)
        except EnvironmentFault as fault:
            raise EnvironmentFault(f"agent {self._agent!r}: {fault}") from None

    def _as_mask(self, mask: object) -> npt.NDArray[Any]:
        if (
            type(mask) is ndarray
            and mask.dtype is self._mask_dtype
            and mask.shape == self._mask_shape
        ):
            return mask
        values = self._checked_mask(mask)
        self._mask_dtype = values.dtype
        return values

    def _checked_mask(self, mask: object) -> npt.NDArray[Any]:
        values = np.asarray(mask)
        if values.shape != self._mask_shape or values.dtype.kind not in "bui":
            raise EnvironmentFault(
                f"agent {self._agent!r}: an action mask must be integers or bool of shape "
                f"{self._mask_shape}, got {values.dtype} {values.shape}"
            )
        return values


class AgentRows(dict[str, AgentRow]):
    """By agent; one that is not there is the environment's fault."""

    def __missing__(self, agent: str) -> AgentRow:
        """Say so."""
        raise EnvironmentFault(f"agent {agent!r} acts or ends but is not in possible_agents")


def _copied_as_it_is(observation: object, *, layout: ObservationLayout) -> np.dtype[Any] | None:
    """The dtype with which further observations need no other look than at their shape.

    Wider floats do: what float32 cannot hold has its value in the message only before the copy.
    """
    if layout.kind != "Box" or not isinstance(observation, np.ndarray):
        return None
    dtype = observation.dtype
    return None if dtype.kind == "f" and dtype.itemsize > FLOAT32_BYTES else dtype
