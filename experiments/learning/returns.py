"""Returns of a finished run's policies, from its evaluations."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from arena.types import RANDOM_BOT, Digest, Tally
from populations.views.questions.inspection import Inspection

MIN_POINTS = 4
"""Least points of a line with an error: numpy wants more than two to spare."""


@dataclass(slots=True)
class Returns:
    """Returns of one kind of player: count, sum and sum of squares over matches."""

    matches: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, tally: Tally, *, seat: int) -> None:
        """Take in those of a seat of a tally."""
        self.matches += tally.matches
        self.total += tally.return_sum[seat]
        self.squares += tally.return_sum_of_squares[seat]

    @property
    def mean(self) -> float:
        """Mean per match."""
        return self.total / self.matches if self.matches else math.nan

    @property
    def squared_error(self) -> float:
        """Squared standard error of the mean."""
        if self.matches < 2:
            return math.inf
        variance = max(self.squares / self.matches - self.mean**2, 0.0)
        return variance / (self.matches - 1)


def late_returns(
    run: Inspection, *, population: str, company: int | None
) -> dict[str, float | int]:
    """Return returns of a population's late checkpoints and of the random bot, in equal company.

    Args:
        run: A finished run.
        population: Population whose returns are meant.
        company: The seat where ``bot:random`` must sit; None: any (cooperation).
    """
    late, random = Returns(), Returns()
    for tally in _evaluations(run):
        if company is not None and str(tally.entrants[company]) != str(RANDOM_BOT):
            continue
        for seat, entrant in enumerate(tally.entrants):
            if run.league.seats[seat].population != population:
                continue
            progress = _progress(run, entrant)
            if str(entrant) == str(RANDOM_BOT):
                random.add(tally, seat=seat)
            elif progress is not None and progress >= 0.75:
                late.add(tally, seat=seat)
    error = math.sqrt(late.squared_error + random.squared_error)
    return {
        "return": round(late.mean, 3),
        "random_return": round(random.mean, 3),
        "standard_errors_above": round((late.mean - random.mean) / error, 1),
        "matches": late.matches,
        "random_matches": random.matches,
    }


def returns_trend(run: Inspection, *, population: str) -> tuple[float, float] | None:
    """Return how much the return rises over a training, in cooperation, and the standard error of
    that.

    The slope of a line through the mean returns of the checkpoints that were evaluated, each with
    the weight of its matches, over the share of their policy's training; the error is from how far
    they are from the line, as ``numpy.polyfit`` has it. None with fewer than four of them.
    """
    by_checkpoint: dict[str, tuple[float, Returns]] = {}
    for tally in _evaluations(run):
        for seat, entrant in enumerate(tally.entrants):
            progress = _progress(run, entrant)
            if run.league.seats[seat].population == population and progress is not None:
                by_checkpoint.setdefault(entrant, (progress, Returns()))[1].add(tally, seat=seat)
    if len(by_checkpoint) < MIN_POINTS:
        return None
    points = [(at, seen.mean, math.sqrt(seen.matches)) for at, seen in by_checkpoint.values()]
    shares, means, weights = np.array(points).T
    line, covariance = np.polyfit(shares, means, 1, w=weights, cov=True)
    return float(line[0]), math.sqrt(covariance[0, 0])


def _evaluations(run: Inspection) -> Iterator[Tally]:
    return (row.tally for row in run.reader.all_tallies() if row.kind == "evaluate")


def _progress(run: Inspection, entrant: str) -> float | None:
    """Return the share of its policy's training at which a checkpoint was made; None for bots."""
    origin = run.league.checkpoints.get(Digest(entrant))
    if origin is None:
        return None
    return origin.agent_steps / max(run.tables.policies[origin.policy].agent_steps, 1)
