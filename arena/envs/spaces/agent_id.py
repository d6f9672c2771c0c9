"""The one-hot agent id at the end of a row: the deciding agent of a population. Torch-free.

Tests: `tests/arena/envs/spaces/test_agent_id_wrapper.py`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from arena.envs.spaces.leaves import Leaf
from arena.envs.spaces.observations import ObservationLayout

AGENT_ID = ("agent id",)
"""Name of the leaf; no environment uses it."""


def is_agent_id(leaf: Leaf) -> bool:
    """Return whether a part of a row is an agent id."""
    return leaf.keys == AGENT_ID


def with_agent_id(layout: ObservationLayout, *, num_agents: int) -> ObservationLayout:
    """Return the layout of rows that end with an agent id.

    Args:
        layout: Layout of the rows without it.
        num_agents: Number of agents of the population.
    """
    # A Discrete leaf, as its numbers are a one-hot.
    leaf = Leaf(
        keys=AGENT_ID,
        kind="Discrete",
        shape=(),
        dtype=np.dtype(np.int64),
        # Last in the row: the places of all other leaves stay.
        offset=layout.size,
        size=num_agents,
        low=0,
        high=num_agents - 1,
        choices=(num_agents,),
        starts=(0,),
    )
    return replace(layout, leaves=(*layout.leaves, leaf), size=layout.size + num_agents)
