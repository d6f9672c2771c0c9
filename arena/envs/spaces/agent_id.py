"""The end of a row that says which agent of a population decides: a one-hot. Torch-free."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from arena.envs.spaces.leaves import Leaf
from arena.envs.spaces.observations import ObservationLayout

AGENT_ID = ("agent id",)
"""What the leaf is called; no environment gives it."""


def is_agent_id(leaf: Leaf) -> bool:
    """Whether a part of a row says who decides."""
    return leaf.keys == AGENT_ID


def with_agent_id(layout: ObservationLayout, *, num_agents: int) -> ObservationLayout:
    """Of rows that end with who decides.

    Args:
        layout: Of what is before.
        num_agents: Of the population.
    """
    leaf = Leaf(
        keys=AGENT_ID,
        kind="Discrete",
        shape=(),
        dtype=np.dtype(np.int64),
        offset=layout.size,
        size=num_agents,
        low=0,
        high=num_agents - 1,
        choices=(num_agents,),
        starts=(0,),
    )
    return replace(layout, leaves=(*layout.leaves, leaf), size=layout.size + num_agents)
