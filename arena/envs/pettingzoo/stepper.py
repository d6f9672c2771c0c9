"""One environment of a batch, as the batch steps it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Stepper(Protocol):
    """One environment that fills its row of the buffers."""

    @property
    def on_turn(self) -> str:
        """Agent whose action is carried out, for messages."""

    def start(self, seed: int) -> None:
        """Reset, and set the first pending decisions."""

    def step(self, actions: Mapping[str, list[Any]]) -> bool:
        """Carry out the pending decisions; True if the episode is over.

        Args:
            actions: Actions of the whole batch by population, in the environment's own form, [B *
                S].
        """

    def close(self) -> None:
        """Release everything that the environment holds."""
