"""Ratings of policies over their training: all evaluated checkpoints, rated by one fit.

Stored fits have the players that decide something at their time, and ratings of two fits cannot be
compared. So this fit is made on demand, from the results in the journal.

Tests: `tests/populations/inspection/test_ratings.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from arena.types import RANDOM_BOT, Digest, Entrant, is_bot, trainee_entrant
from populations.controller.rating_fit import parents_of, snapshot, times_of
from populations.league.league import League
from populations.ratings.bradley_terry import BradleyTerry
from populations.ratings.model import Z95, Fit
from populations.ratings.results import Rated
from populations.records.rows import CheckpointRow, EventRow, Json
from populations.records.tables import Tables

ASSIGNED = ("start_assigned", "train_assigned")
"""Kinds of the events of an assignment that makes checkpoints; their subjects are its id."""


RATING = ("evaluate", "merged")
"""Kinds of the results of pairs that rate checkpoints."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Rating with its 95% interval, in Elo.

    Attributes:
        rating: Rating.
        low: Lower end of the interval.
        high: Upper end.
    """

    rating: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFit:
    """One fit of the weights of all recorded checkpoints that have played evaluation matches.

    Attributes:
        fit: The fit; None without an evaluation match.
        positions: Place of each entrant in it.
    """

    fit: Fit[Rated] | None
    positions: Mapping[Rated, int]

    @classmethod
    def of(cls, league: League, tables: Tables) -> CheckpointFit:
        """Make the fit.

        Args:
            league: Fold of the tables, results of pairs included.
            tables: Rows of the run.
        """
        fit = _fit(league, tables)
        entrants = () if fit is None else fit.entrants
        return cls(fit=fit, positions={rated: i for i, rated in enumerate(entrants)})

    def difference(self, first: Rated, second: Rated) -> Interval | None:
        """Return how much better ``first`` is, with the interval of the difference; None if one of
        them is unrated.
        """
        i, j = self.positions.get(first), self.positions.get(second)
        if self.fit is None or i is None or j is None:
            return None
        mean = float(self.fit.ratings[i] - self.fit.ratings[j])
        # What is uncertain about both alike cancels.
        gap = self.fit.spread[i] - self.fit.spread[j]
        half = Z95 * float(gap @ gap) ** 0.5
        return Interval(mean, mean - half, mean + half)

    def intervals(self) -> dict[Rated, Interval]:
        """Return the rating of each entrant; ``bot:random`` is at 0 on each scale."""
        return {} if self.fit is None else _intervals(self.fit)


def _fit(league: League, tables: Tables) -> Fit[Rated] | None:
    known = snapshot(league, tables)
    chosen = {
        rated: None
        for rated in league.records
        if is_bot(rated[1]) or Digest(rated[1]) in league.checkpoints
    }
    if not chosen:
        return None
    return BradleyTerry(reduces_bias=True).fit(
        known.results.select(chosen),
        links=known.links.select(chosen),
        entrants=chosen,
        parents=parents_of(known.checkpoints, chosen),
        times=times_of(known, chosen),
        anchors=[(population, Entrant(RANDOM_BOT)) for population in known.populations],
    )


def _intervals(fit: Fit[Rated]) -> dict[Rated, Interval]:
    # Errors against the anchor widen intervals, as in the standings.
    half = Z95 * (fit.deviations**2 + fit.anchor_errors**2) ** 0.5
    lines = zip(fit.entrants, fit.ratings.tolist(), half.tolist(), strict=True)
    return {
        rated: Interval(rating, rating - width, rating + width) for rated, rating, width in lines
    }


def rating_points(
    tables: Tables, ratings: Mapping[Rated, Interval], *, assigned: Iterable[EventRow]
) -> dict[str, list[Json]]:
    """Return the rated checkpoints of each policy in the order of their training, by population.

    Args:
        tables: Rows of the run.
        ratings: Rating of each checkpoint, by `CheckpointFit.intervals`.
        assigned: Events of kinds `ASSIGNED`.
    """
    # The last of equal subjects: an assignment that failed is given out again.
    times = {event.subject: event.time for event in assigned}
    points: dict[str, dict[str, list[tuple[tuple[int, int], Json]]]] = {}
    for policy in tables.policies.values():
        points.setdefault(policy.population, {})[policy.policy] = []
    for row in tables.checkpoints.values():
        policy_row = tables.policies[row.policy]
        interval = ratings.get((policy_row.population, Entrant(row.weights_digest)))
        if interval is not None:
            point = _point(tables, row, interval, times=times)
            order = (row.agent_steps, row.generation)
            points[policy_row.population][row.policy].append((order, point))
    return {
        population: [
            {"player": policy, "points": [point for _, point in sorted(line, key=lambda p: p[0])]}
            for policy, line in lines.items()
        ]
        for population, lines in points.items()
    }


def _point(
    tables: Tables, row: CheckpointRow, interval: Interval, *, times: Mapping[str, str]
) -> dict[str, Json]:
    generation = tables.generations.get(trainee_entrant(row.policy, generation=row.generation))
    return {
        "agent_steps": row.agent_steps,
        "time": times.get(str(row.assignment_id)),
        "rating": interval.rating,
        "rating_low": interval.low,
        "rating_high": interval.high,
        "generation": row.generation,
        "cause": None if generation is None else generation.cause,
    }


def champion_spans(events: Iterable[EventRow]) -> list[dict[str, Json]]:
    """Return since when and until when each champion has led its population.

    Args:
        events: Events of kind ``champion``, oldest first.
    """
    spans: list[dict[str, Json]] = []
    current: dict[str, dict[str, Json]] = {}
    for event in events:
        population = str(event.data["population"])
        if population in current:
            current[population]["until"] = event.time
        current[population] = {
            "population": population,
            "player": event.subject,
            "since": event.time,
            "until": None,
        }
        spans.append(current[population])
    return spans
