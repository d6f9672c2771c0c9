"""Upper ends of intervals where they are drawn: those that are open above go past all others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

MARGIN = 0.1
"""Part of the drawn range by which an open interval goes past the others."""


def upper_ends(lines: Sequence[Mapping[str, object]]) -> list[float | None]:
    """Return the upper end of each interval as it is drawn; None where there is none.

    Args:
        lines: Players or points with a rating and its interval, as documents have them.
    """
    keys = ("rating", "rating_low", "rating_high")
    known = [value for line in lines for key in keys if isinstance(value := line[key], int | float)]
    top = max(known, default=0.0) + MARGIN * (max(known, default=0.0) - min(known, default=0.0))
    return [
        top if line.get("open") else cast("float | None", line["rating_high"]) for line in lines
    ]
