"""The newest ghosts, all alike: self-play in Unity's ML-Agents.

Source: ML-Agents toolkit, trainer settings ``window`` and ``play_against_latest_model_ratio``.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from arena.config import Model
from populations.candidates import FloatArray, IntArray
from populations.core import OpponentRequest
from populations.rule_kinds import RuleKind, itself


class WindowRule(Model):
    """Rule of the newest ghosts. Skills that only older ones test may be forgotten."""

    window: int = Field(32, ge=1, le=100_000)
    """Number of the newest ghosts of a population that the matchmaker ``window`` draws from."""

    def weights(self, request: OpponentRequest, *, rng: np.random.Generator) -> FloatArray:
        """Return 1 in the window, 0 outside. float64 [N]."""
        del rng
        weights = np.zeros(len(request.ghosts))
        weights[newest(request.ghosts.agent_steps, num=self.window)] = 1.0
        return weights


def newest(agent_steps: IntArray, *, num: int) -> IntArray:
    """Return positions of those with most agent steps; of equals, of those that came later.

    Args:
        agent_steps: Agent steps in order of coming. int64 [N].
        num: Number of positions.

    Returns:
        Ascending. int64 [min(num, N)].
    """
    if num >= len(agent_steps):
        return np.arange(len(agent_steps))
    # The border of the window without a sort of all ghosts.
    oldest = np.partition(agent_steps, len(agent_steps) - num)[-num:].min()
    above = np.flatnonzero(agent_steps > oldest)
    ties = np.flatnonzero(agent_steps == oldest)
    # Of ghosts exactly at the border, the later ones fill the window.
    return np.sort(np.concatenate([above, ties[len(ties) - (num - len(above)) :]]))


KIND = RuleKind(
    name="window",
    settings=WindowRule,
    make=itself,
    section="ghosts",
)
