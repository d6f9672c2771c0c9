"""What past generations teach: how fast the rating rose with which hyperparameters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from populations.types import GenerationRow

MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Improvement:
    """A finished generation.

    Attributes:
        row: The generation.
        rating_begin: Elo.
        num_steps: Agent steps that it lasted, above 0.
        rate: Elo per million agent steps.
    """

    row: GenerationRow
    rating_begin: float
    num_steps: int
    rate: float


def finished(
    history: Iterable[GenerationRow], *, names: Sequence[str] = ()
) -> tuple[Improvement, ...]:
    """The generations that ended, were rated at both ends and lasted at least a step.

    Args:
        history: In order of beginning.
        names: Hyperparameters that a generation must have had, as finite numbers.
    """
    found = []
    for row in history:
        begin, end = row.rating_begin, row.rating_end
        if row.agent_steps_end is None or begin is None or end is None:
            continue
        num_steps = row.agent_steps_end - row.agent_steps_begin
        if num_steps <= 0 or not _has_all(row, names):
            continue
        rate = (end - begin) * MILLION / num_steps
        if math.isfinite(begin) and math.isfinite(rate):
            found.append(Improvement(row=row, rating_begin=begin, num_steps=num_steps, rate=rate))
    return tuple(found)


def running(
    history: Iterable[GenerationRow], *, names: Sequence[str] = ()
) -> tuple[GenerationRow, ...]:
    """The generations that have not ended: one per policy, the newest."""
    newest = {row.policy: row for row in history if row.agent_steps_end is None}
    return tuple(row for row in newest.values() if _has_all(row, names))


def _has_all(row: GenerationRow, names: Iterable[str]) -> bool:
    return all(math.isfinite(row.hyperparameters.get(name, math.nan)) for name in names)
