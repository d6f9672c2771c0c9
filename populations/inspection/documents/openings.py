"""The view ``openings``: first decisions over training, and how they score.

Tests: `tests/populations/inspection/test_openings.py`.
"""

from __future__ import annotations

from arena.matches.comparisons import is_by_seats
from arena.types import PolicyId, population_of
from populations.inspection.inspection import Document, Inspection
from populations.inspection.openings import (
    is_countable,
    label_of,
    rows_of,
    summary_of,
    window_width,
    windows_of,
)
from populations.records.rows import Json


def openings_view(run: Inspection, population: str | None) -> Document:
    """Return first decisions in evaluation matches, over agent steps, and how they score.

    ``openings`` has a row per window and action of each seat, of all policies (``player`` is null)
    and of the policy that the champion is or comes from; ``summary`` sums up each of these.
    """
    seats, specs = run.league.seats, run.run_file.spec.agent_specs
    steps = dict.fromkeys((seat.population for seat in seats), 0)
    for row in run.league.checkpoints.values():
        name = population_of(row.policy)
        steps[name] = max(steps.get(name, 0), row.agent_steps)
    width = {name: window_width(most) for name, most in steps.items()}
    played = windows_of(run.reader.all_tallies(), league=run.league, width=width)
    best = run.champions(population)
    rows: list[Json] = []
    summaries: list[Json] = []
    by_seats = is_by_seats(seats)
    said: set[str] = set()
    for index, seat in enumerate(seats):
        # Of many seats none is counted; one stands for its population.
        is_said = not by_seats and seat.population in said
        if population not in (None, seat.population) or is_said:
            continue
        said.add(seat.population)
        spec = specs[seat.agents[0]]
        label, is_counted = label_of(spec), by_seats and is_countable(spec)
        leader = best.get(seat.population)
        # A ghost's id is its policy's and more.
        own = None if leader is None else PolicyId(leader.player.split("@")[0])
        for player in dict.fromkeys((None, own)):
            windows = played.get((index, player), {})
            of: Document = {"population": seat.population, "seat": seat.name, "player": player}
            found = rows_of(windows, width=width[seat.population], label=label)
            rows += [{**of, **line} for line in found]
            summary = (
                summary_of(windows, width=width[seat.population], label=label) if windows else {}
            )
            summaries.append({**of, "is_counted": is_counted, **summary})
    return {"summary": summaries, "openings": rows}
