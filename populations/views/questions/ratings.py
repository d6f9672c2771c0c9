"""Ratings of policies over their training: all evaluated checkpoints, by the last fit.

Ratings of two fits cannot be compared; those that are shown are all of that one.

Tests: `tests/populations/views/test_ratings.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from arena.types import Entrant, trainee_entrant
from populations.controller.rating_fit import fit_input, fit_ratings, snapshot
from populations.league.league import League
from populations.league.ratings import Interval, Ratings, interval_fields
from populations.ratings.model import Z95
from populations.ratings.results import Rated
from populations.records.rows import Document, EventRow
from populations.records.tables import Tables

ASSIGNED = ("start_assigned", "train_assigned")
"""Kinds of the events of an assignment that makes checkpoints; their subjects are its id."""


RATING = ("evaluate", "merged")
"""Kinds of the results of pairs that rate checkpoints."""


@dataclass(frozen=True)
class CheckpointFit:
    """Last fit of a run: of all recorded checkpoints that have played evaluation matches.

    Attributes:
        league: Fold of the tables, results of pairs included.
        tables: Rows of the run.
    """

    league: League
    tables: Tables

    def difference(self, first: Rated, second: Rated) -> Interval | None:
        """Return how much better ``first`` is, with the interval of the difference; None if one of
        them is unrated, or of another population.

        It is the difference of the two ratings as they are shown, the champion's less its luck.
        """
        ratings = self._ratings.get(first[0])
        gap = None if ratings is None else ratings.difference(first[1], second[1])
        if ratings is None or gap is None or first[0] != second[0]:
            return None
        mean = (ratings.rating(first[1]) or 0.0) - (ratings.rating(second[1]) or 0.0)
        half = Z95 * gap[1]
        return Interval(mean, mean - half, mean + half)

    def intervals(self) -> dict[Rated, Interval]:
        """Return the rating of each entrant; ``bot:random`` is at 0 on each scale."""
        rated = ((name, Ratings(row)) for name, row in self.tables.ratings.items())
        return {
            (population, Entrant(entrant)): interval
            for population, ratings in rated
            for entrant in ratings.best_first
            if (interval := ratings.interval(entrant)) is not None
        }

    @cached_property
    def _ratings(self) -> dict[str, Ratings]:
        """Ratings with what errors have in common, which the journal does not have.

        The fit is repeated for that; matches since then change what is common by little.
        """
        rows = self.tables.ratings
        known = snapshot(self.league, self.tables, rated=rows)
        again = fit_ratings(fit_input(known))
        return {name: Ratings(row, again[name].spread) for name, row in rows.items()}


def rating_points(
    tables: Tables, ratings: Mapping[Rated, Interval], *, assigned: Iterable[EventRow]
) -> dict[str, list[Document]]:
    """Return the rated checkpoints of each policy in the order of their training, by population.

    Args:
        tables: Rows of the run.
        ratings: Rating of each checkpoint, by `CheckpointFit.intervals`.
        assigned: Events of kinds `ASSIGNED`.
    """
    # The last of equal subjects: an assignment that failed is given out again.
    times = {event.subject: event.time for event in assigned}
    lines: dict[str, dict[str, list[Document]]] = {}
    for policy in tables.policies.values():
        lines.setdefault(policy.population, {})[policy.policy] = []
    for row in sorted(
        tables.checkpoints.values(), key=lambda one: (one.agent_steps, one.generation)
    ):
        population = tables.policies[row.policy].population
        interval = ratings.get((population, Entrant(row.weights_digest)))
        if interval is None:
            continue
        entrant = trainee_entrant(row.policy, generation=row.generation)
        generation = tables.generations.get(entrant)
        lines[population][row.policy].append(
            {
                "agent_steps": row.agent_steps,
                "time": times.get(str(row.assignment_id)),
                **interval_fields(interval),
                "generation": row.generation,
                "cause": None if generation is None else generation.cause,
            }
        )
    return {
        population: [{"player": policy, "points": points} for policy, points in own.items()]
        for population, own in lines.items()
    }


def champion_spans(events: Iterable[EventRow]) -> list[Document]:
    """Return since when and until when each champion has led its population.

    Args:
        events: Events of kind ``champion``, oldest first.
    """
    spans: list[Document] = []
    current: dict[str, Document] = {}
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
