"""Self-play: everyone plays the latest, nobody meets a ghost.

Also how the other rules split an assignment between the latest and their ghosts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from populations.core import Candidate, OpponentRequest, Opponents


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestMatchmaker:
    """Mirror self-play; against another population, latest checkpoints drawn uniformly."""

    def draw(self, request: OpponentRequest, *, rng: np.random.Generator) -> Opponents:
        """Only the latest, whatever ghosts there are."""
        return combine(request, num_latest=request.num_opponents, ghosts=(), rng=rng)


def draw_num_latest(
    request: OpponentRequest, *, latest_ratio: float, rng: np.random.Generator
) -> int:
    """How many of the opponents are the latest.

    The whole part of ``latest_ratio * num_opponents`` is certain and one draw decides about the
    rest, so the share is exact on average and hardly varies. All, if there are no ghosts.

    Raises:
        ValueError: If ``latest_ratio`` leaves [0, 1] or ``num_opponents`` is below 1.
    """
    if not 0.0 <= latest_ratio <= 1.0:
        raise ValueError(f"latest_ratio must be in [0, 1], got {latest_ratio!r}")
    if request.num_opponents < 1:
        raise ValueError(f"num_opponents must be at least 1, got {request.num_opponents!r}")
    if not request.ghosts:
        return request.num_opponents
    # Rounded, because 0.1 * 30 is a bit more than 3.
    share = round(latest_ratio * request.num_opponents, 9)
    whole = math.floor(share)
    return whole + int(rng.random() < share - whole)


def combine(
    request: OpponentRequest,
    *,
    num_latest: int,
    ghosts: Sequence[Candidate],
    rng: np.random.Generator,
) -> Opponents:
    """Put drawn ghosts and the latest together.

    Raises:
        ValueError: If no one is left to be drawn.
    """
    if num_latest + len(ghosts) < 1:
        raise ValueError(f"num_opponents must be at least 1, got {request.num_opponents!r}")
    if not request.latest:
        return Opponents(num_mirrors=num_latest, players=tuple(ghosts))
    drawn = rng.integers(len(request.latest), size=num_latest)
    latest = tuple(request.latest[int(index)] for index in drawn)
    return Opponents(num_mirrors=0, players=(*latest, *ghosts))
