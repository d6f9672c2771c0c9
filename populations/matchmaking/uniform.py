"""Fictitious self-play: ghosts of all policies, all alike.

Source: Heinrich, Lanctot and Silver, "Fictitious self-play in extensive-form games" (ICML 2015).
"""

from __future__ import annotations

import numpy as np

from populations.candidates import FloatArray
from populations.core import OpponentRequest
from populations.rule_kinds import NoSettings, RuleKind


class UniformRule:
    """Every ghost is as likely as any other."""

    def weights(self, request: OpponentRequest, *, rng: np.random.Generator) -> FloatArray:
        """Return all 1. float64 [N]."""
        del rng
        return np.ones(len(request.ghosts))


KIND = RuleKind(name="uniform", settings=NoSettings, make=lambda _: UniformRule())
