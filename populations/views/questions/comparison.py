"""Curves of several runs together: what one setting does on the average, and how it scatters.

Tests: `tests/populations/views/test_comparison.py`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

from arena.errors import ConfigError
from arena.types import RANDOM_BOT, Digest, Entrant
from populations.records.rows import Json
from populations.views.questions.inspection import Document, Inspection, rating_points
from populations.views.questions.results import seen_from_both

NUM_POINTS = 20
"""Points of a curve, at equal distances in agent steps."""

Values = Sequence[float | None]
"""A run's values at each point; None where it has none."""


def comparison(runs: Sequence[Inspection], *, population: str | None = None) -> Document:
    """Return what several runs are, and the means of their curves with their intervals.

    A run's rating at some agent steps is that of its best policy, by the newest rated checkpoint
    until then of each; its score is that of all its policies against ``bot:random``, by the
    evaluation matches of the checkpoints since the point before. Curves end where the shortest run
    does. Intervals are of the mean over runs, by Student's t; null with fewer than two values.

    Args:
        runs: Runs of one environment.
        population: Population; None: all.

    Raises:
        ConfigError: If there are fewer than two, one is given twice or a copy of another, they are
            of different environments or populations, or have no such population.
    """
    _require_comparable(runs)
    names = list(runs[0].standings(population))
    if not names:
        raise ConfigError(
            f"--population {population}: the runs have {', '.join(runs[0].standings())}"
        )
    return {
        "environment": runs[0].run_file.spec.id,
        "runs": [_described(run, names) for run in runs],
        "populations": {name: list(_curve(runs, name)) for name in names},
    }


def _require_comparable(runs: Sequence[Inspection]) -> None:
    if len(runs) < 2:
        raise ConfigError(f"a comparison needs two or more runs, got {len(runs)}")
    first = runs[0]
    known: dict[str, Inspection] = {}
    for run in runs:
        # A copy, too: its values are no others, and would make the intervals narrow.
        if (again := known.setdefault(run.tables.run.run, run)) is not run:
            raise ConfigError(
                f"each run must be given once: {run.run_dir} is {again.run_dir} again"
            )
        if run.run_file.spec.of_matches.digest != first.run_file.spec.of_matches.digest:
            raise ConfigError(
                f"runs must share one environment: {first.run_dir} plays {first.run_file.spec.id}, "
                f"{run.run_dir} plays {run.run_file.spec.id}, with its own spaces and arguments"
            )
        ours, theirs = (set(one.standings()) for one in (first, run))
        if ours != theirs:
            raise ConfigError(
                f"runs must have the same populations: {first.run_dir} has "
                f"{', '.join(sorted(ours))}, {run.run_dir} has {', '.join(sorted(theirs))}"
            )


def _described(run: Inspection, names: Sequence[str]) -> Document:
    best = run.champions()
    return {
        "run": run.tables.run.run,
        "run_dir": str(run.run_dir),
        "name": run.run_file.name,
        "seed": run.run_file.config.seed,
        "agent_steps": run.tables.run.agent_steps,
        "champions": {name: best[name].player if name in best else None for name in names},
    }


def _curve(runs: Sequence[Inspection], population: str) -> Iterator[Json]:
    rated = [_ratings(run, population) for run in runs]
    scored = [_scores(run, population) for run in runs]
    # Curves end where all runs have come; one without ratings has come nowhere.
    end = min(max((steps for line in lines for steps, _ in line), default=0) for lines in rated)
    if not end:
        return
    ends = [round(end * (number + 1) / NUM_POINTS) for number in range(NUM_POINTS)]
    ratings = [_best_at(lines, ends) for lines in rated]
    scores = [_score_at(results, ends) for results in scored]
    for index, steps in enumerate(ends):
        score = _pooled("score", [values[index] for values in scores])
        # A mean of scores is one, and so are the ends of its interval.
        bounded = {
            key: min(max(value, 0.0), 1.0) if isinstance(value, float) else value
            for key, value in score.items()
        }
        rating = _pooled("rating", [values[index] for values in ratings])
        yield {"agent_steps": steps, **rating, **bounded}


def _ratings(run: Inspection, population: str) -> list[list[tuple[int, float]]]:
    """Return the rated checkpoints of each policy: agent steps and rating, in order."""
    lines = rating_points(run.rated, assigned=()).get(population, [])
    return [[(point["agent_steps"], point["rating"]) for point in line["points"]] for line in lines]


def _best_at(lines: Sequence[Sequence[tuple[int, float]]], ends: Sequence[int]) -> Values:
    found: list[float | None] = []
    for end in ends:
        newest = [[rating for steps, rating in line if steps <= end][-1:] for line in lines]
        found.append(max((rating for last in newest for rating in last), default=None))
    return found


def _scores(run: Inspection, population: str) -> list[tuple[int, float, float]]:
    """Return results of checkpoints against ``bot:random``: agent steps, points and matches."""
    found = []
    for row in run.met:
        for own, (_, other), _, counts, _ in seen_from_both(row, run.league.seats):
            origin = run.league.checkpoints.get(Digest(own[1]))
            if other == Entrant(RANDOM_BOT) and origin and own[0] == population:
                found.append((origin.agent_steps, counts.points, counts.matches))
    return found


def _score_at(results: Sequence[tuple[int, float, float]], ends: Sequence[int]) -> Values:
    found: list[float | None] = []
    for begin, end in zip((-1, *ends), ends, strict=False):
        own = [(won, played) for steps, won, played in results if begin < steps <= end]
        played = math.fsum(number for _, number in own)
        found.append(math.fsum(won for won, _ in own) / played if played else None)
    return found


def _pooled(name: str, values: Values) -> Mapping[str, Json]:
    """Return the mean of the runs' values, its 95% interval, and the number of runs."""
    known = [value for value in values if value is not None]
    mean = statistics.fmean(known) if known else None
    low = high = None
    if mean is not None and len(known) > 1:
        from scipy.special import stdtrit  # here, because importing it takes a while

        # m -+ t s / sqrt(n), with the t of n - 1 degrees of freedom
        half = float(stdtrit(len(known) - 1, 0.975)) * statistics.stdev(known) / len(known) ** 0.5
        low, high = mean - half, mean + half
    return {name: mean, f"{name}_low": low, f"{name}_high": high, f"{name}_runs": len(known)}
