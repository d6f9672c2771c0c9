"""The newer part of history, all alike: "delta-uniform past" sampling.

Source: Bansal, Pachocki, Sidor, Sutskever and Mordatch, "Emergent complexity via multi-agent
competition" (ICLR 2018), section 3.2: opponents uniform over (delta v, v), v the latest iteration.
"""

from __future__ import annotations

import numpy as np

from arena.config import Model
from populations.candidates import FloatArray
from populations.core import OpponentRequest
from populations.fields import Share
from populations.rule_kinds import RuleKind, itself


class DeltaUniformRule(Model):
    """Ghosts whose agent steps are at least ``delta`` times those of the newest, all alike."""

    delta: Share = 0.5
    """``delta_uniform``: part of history that is too old; 0: none, 1: all but the newest."""

    def weights(self, request: OpponentRequest, *, rng: np.random.Generator) -> FloatArray:
        """Return 1 within the newest 1 - delta of history, 0 before. float64 [N]."""
        del rng
        agent_steps = request.ghosts.agent_steps
        # (delta v, v) of the paper, with agent steps as iterations. The newest always passes, so
        # the weights never sum to 0.
        return np.asarray(agent_steps >= self.delta * int(agent_steps.max()), dtype=np.float64)


KIND = RuleKind(
    name="delta_uniform",
    settings=DeltaUniformRule,
    make=itself,
)
