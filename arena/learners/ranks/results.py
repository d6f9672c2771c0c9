"""A rank's part of an assignment's result, and the sum of all ranks'.

Tests: `tests/arena/learners/ranks/test_results.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from arena.matches.tally import merge_tallies
from arena.rollout.measured import Measures
from arena.types import Count, Entrant, Part, PolicyId, Tally
from arena.wire.messages import Finished, InFlight


class Losses(Part, frozen=True, kw_only=True):
    """Episodes that came to nothing.

    Attributes:
        dropped: Policies whose episodes in flight are gone.
        num_dropped: Number of episodes that were dropped for lack of memory.
        num_void: Number of episodes whose environment broke.
    """

    dropped: tuple[PolicyId, ...]
    num_dropped: Count
    num_void: Count

    def added_to(self, finished: Finished) -> Finished:
        """Return a result that reports them."""
        lost = {"episode/void": float(self.num_void), "episode/dropped": float(self.num_dropped)}
        metrics = {**finished.metrics, **{name: count for name, count in lost.items() if count}}
        return replace(finished, metrics=metrics, dropped=self.dropped)


class RankResult(Part, frozen=True, kw_only=True):
    """A rank's part of the result of a training assignment.

    Attributes:
        tallies: Matches.
        episodes: All episodes, matches or not.
        measures: Measurements of each trainee, in the order of the assignment.
        in_flight: Episodes that are held to continue.
        losses: Episodes that were lost.
    """

    tallies: tuple[Tally, ...]
    episodes: tuple[Tally, ...]
    measures: tuple[Measures, ...]
    in_flight: tuple[InFlight, ...]
    losses: Losses


def merge_results(results: Sequence[RankResult]) -> RankResult:
    """Return the result of all ranks, as if one process had played all environments."""
    first = results[0]
    for other in results[1:]:
        for mine, theirs in zip(first.measures, other.measures, strict=True):
            mine.merge(theirs)
    return RankResult(
        tallies=merge_tallies([tally for one in results for tally in one.tallies]),
        episodes=merge_tallies([tally for one in results for tally in one.episodes]),
        measures=first.measures,
        in_flight=_merge_in_flight([flight for one in results for flight in one.in_flight]),
        losses=Losses(
            dropped=tuple(dict.fromkeys(name for one in results for name in one.losses.dropped)),
            num_dropped=sum(one.losses.num_dropped for one in results),
            num_void=sum(one.losses.num_void for one in results),
        ),
    )


def _merge_in_flight(parts: Sequence[InFlight]) -> tuple[InFlight, ...]:
    merged: dict[tuple[Entrant, ...], InFlight] = {}
    for part in parts:
        known = merged.get(part.entrants)
        num_envs = part.num_envs + (0 if known is None else known.num_envs)
        merged[part.entrants] = replace(part, num_envs=num_envs)
    return tuple(merged.values())
