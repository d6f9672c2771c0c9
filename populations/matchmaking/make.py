"""From the configuration's words to a matchmaker."""

from __future__ import annotations

from populations.core import Matchmaker
from populations.matchmaking.latest import LatestMatchmaker
from populations.matchmaking.pfsp import PfspMatchmaker, Weighting
from populations.matchmaking.uniform import UniformMatchmaker
from populations.matchmaking.window import WindowMatchmaker

KINDS = ("latest", "uniform", "window", "pfsp")


def make_matchmaker(
    kind: str,
    *,
    weighting: Weighting = "squared",
    latest_ratio: float = 0.5,
    window: int = 32,
) -> Matchmaker:
    """Make the matchmaker of a run.

    Args:
        kind: One of ``KINDS``.
        weighting: Of ``pfsp``.
        latest_ratio: Share of opponents that are the latest; all of them for ``latest``.
        window: How many of the newest ghosts ``window`` draws from.

    Raises:
        ValueError: If there is no such kind.
    """
    match kind:
        case "latest":
            return LatestMatchmaker()
        case "uniform":
            return UniformMatchmaker(latest_ratio=latest_ratio)
        case "window":
            return WindowMatchmaker(latest_ratio=latest_ratio, window=window)
        case "pfsp":
            return PfspMatchmaker(latest_ratio=latest_ratio, weighting=weighting)
    raise ValueError(f"matchmaking.kind must be one of {', '.join(KINDS)}, got {kind!r}")
