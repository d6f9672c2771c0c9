"""Rules that choose ghosts by age alone: all, the newer part of history, the newest, or none.

Sources: ``uniform`` is fictitious self-play (Heinrich, Lanctot and Silver, "Fictitious self-play in
extensive-form games", ICML 2015). ``delta_uniform``: Bansal, Pachocki, Sidor, Sutskever and
Mordatch, "Emergent complexity via multi-agent competition" (ICLR 2018), section 3.2: opponents
uniform over (delta v, v), v the latest iteration. ``window``: ML-Agents toolkit, trainer settings
``window`` and ``play_against_latest_model_ratio``.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from arena.config import Model
from populations.candidates import FloatArray, IntArray
from populations.core import OpponentRequest
from populations.fields import Share
from populations.matchmaking.drawing import RuleMatchmaker
from populations.rule_kinds import RuleKind, itself


class WindowRule(Model):
    """Rule of the newest ghosts, all alike. Skills that only older ghosts test may fade."""

    window: int = Field(32, ge=1, le=100_000)
    """Number of the newest ghosts of a population that the matchmaker ``window`` draws from."""

    def weights(self, request: OpponentRequest, *, rng: np.random.Generator) -> FloatArray:
        """Return weights: 1 for ghosts in the window, 0 for others. float64 [N]."""
        del rng
        weights = np.zeros(len(request.ghosts))
        weights[newest(request.ghosts.agent_steps, num=self.window)] = 1.0
        return weights


def newest(agent_steps: IntArray, *, num: int) -> IntArray:
    """Return the positions of the ghosts with most agent steps; among equals, the later ones.

    Args:
        agent_steps: Agent steps of ghosts, in order of creation. int64 [N].
        num: Maximum number of positions.

    Returns:
        Positions, ascending. int64 [min(num, N)].
    """
    if num >= len(agent_steps):
        return np.arange(len(agent_steps))
    # A partition finds the border of the window faster than a sort of all ghosts.
    oldest = np.partition(agent_steps, len(agent_steps) - num)[-num:].min()
    above = np.flatnonzero(agent_steps > oldest)
    ties = np.flatnonzero(agent_steps == oldest)
    # Of the ghosts exactly at the border, the later ones fill the window.
    return np.sort(np.concatenate([above, ties[len(ties) - (num - len(above)) :]]))


WINDOW = RuleKind(
    name="window",
    settings=WindowRule,
    make=itself,
    section="ghosts",
)


class UniformRule:
    """Rule by which all ghosts are equally likely."""

    def weights(self, request: OpponentRequest, *, rng: np.random.Generator) -> FloatArray:
        """Return equal weights. float64 [N]."""
        del rng
        return np.ones(len(request.ghosts))


UNIFORM = RuleKind(name="uniform", settings=Model, make=lambda _: UniformRule())

# `latest` is mirror self-play; of another population it draws the latest checkpoints uniformly, or
# the ghosts if no policy of that population is active.
LATEST = RuleKind(
    name="latest",
    settings=Model,
    make=lambda _: RuleMatchmaker(rule=UniformRule(), latest_ratio=1.0),
    unread=frozenset({"latest_ratio"}),
)


class DeltaUniformRule(Model):
    """Rule that draws uniformly from ghosts with at least ``delta`` times the newest steps."""

    delta: Share = 0.5
    """``delta_uniform``: share of history that is too old; 0: none, 1: all but the newest ghost."""

    def weights(self, request: OpponentRequest, *, rng: np.random.Generator) -> FloatArray:
        """Return weights: 1 in the newest 1 - delta of history, 0 before. float64 [N]."""
        del rng
        agent_steps = request.ghosts.agent_steps
        # This is the paper's range (delta v, v), with agent steps as iterations. The newest ghost
        # is always in it, so the weights never sum to 0.
        return np.asarray(agent_steps >= self.delta * int(agent_steps.max()), dtype=np.float64)


DELTA_UNIFORM = RuleKind(
    name="delta_uniform",
    settings=DeltaUniformRule,
    make=itself,
)
