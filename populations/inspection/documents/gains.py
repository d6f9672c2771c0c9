"""Elo that each generation of a policy has gained, by one fit of all rated checkpoints.

Ratings that generations were recorded with are of the fits of their times, and those cannot be
compared.

Tests: `tests/populations/inspection/test_lives.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from arena.types import Entrant, PolicyId, trainee_entrant
from populations.inspection.inspection import Document, Inspection
from populations.inspection.ratings import CheckpointFit, Interval
from populations.ratings.results import Rated
from populations.records.rows import EventRow, GenerationRow, Json
from populations.records.tables import Tables

BEGINNINGS = (
    *("policy_created", "exploited", "explored", "immigrated", "replayed", "reset", "rewound"),
    *("learning_rate_halved", "hyperparameters_changed", "checkpoint_adopted"),
)
"""Kinds of the events that begin a generation; their subjects are policies."""

STEPS = "elo_gain_agent_steps"
"""Key of the agent steps that a gain is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Ratings of a generation's weights at its beginning and its end.

    Attributes:
        begin: Rating of the weights that it began with, or of the nearest rated ones before; those
            that began fresh: of their first rated ones. None: none were rated.
        end: Rating of its newest rated weights; None: none were rated.
        gain: Difference of the two; None: unknown, or they are about the same weights.
        agent_steps: Agent steps trained between the two weights. None: there is no gain, they are
            unknown, or earlier generations trained more of them than this one.
    """

    begin: Interval | None = None
    end: Interval | None = None
    gain: Interval | None = None
    agent_steps: int | None = None

    def document(self) -> Document:
        """Return the figures as plain data."""
        figures = {"elo_begin": self.begin, "elo_end": self.end, "elo_gain": self.gain}
        found: Document = {
            key: value
            for name, one in figures.items()
            for key, value in zip(
                (name, f"{name}_low", f"{name}_high"),
                (None, None, None) if one is None else (one.rating, one.low, one.high),
                strict=True,
            )
        }
        return {**found, STEPS: self.agent_steps}

    @classmethod
    def from_document(cls, document: Mapping[str, Json]) -> Gain:
        """Return the gain whose figures a document has, among others."""
        begin, end, gain = (
            _interval(document, name) for name in ("elo_begin", "elo_end", "elo_gain")
        )
        return cls(begin=begin, end=end, gain=gain, agent_steps=_int(document[STEPS]))


def _interval(document: Mapping[str, Json], name: str) -> Interval | None:
    found = [document[key] for key in (name, f"{name}_low", f"{name}_high")]
    ends = [float(value) for value in found if isinstance(value, int | float)]
    return Interval(*ends) if len(ends) == len(found) else None


def checkpoint_fit(run: Inspection) -> tuple[Tables, CheckpointFit]:
    """Rate all checkpoints of a run by one fit; with the rows that it was made from.

    The rows are of one moment, which may be later than the inspection's.
    """
    return run.rated


def gains(
    tables: Tables, fit: CheckpointFit, generations: Mapping[Entrant, GenerationRow]
) -> dict[Entrant, Gain]:
    """Return what each generation has gained.

    Args:
        tables: Rows that the fit was made from.
        fit: Ratings of the checkpoints.
        generations: Generations to look at, those of their lines included.
    """
    intervals = fit.intervals()
    rated: defaultdict[Entrant, list[tuple[int, Rated]]] = defaultdict(list)
    for row in tables.checkpoints.values():
        weights = (tables.policies[row.policy].population, Entrant(row.weights_digest))
        if weights in intervals:
            entrant = trainee_entrant(row.policy, generation=row.generation)
            rated[entrant].append((row.agent_steps, weights))
    for line in rated.values():
        line.sort()
    found: dict[Entrant, Gain] = {}
    for entrant, generation in generations.items():
        own = rated.get(entrant, [])
        begin, lead = _before(generation, generations, rated)
        if begin is None and generation.parent not in generations and own:
            begin, lead = own[0][1], generation.agent_steps_begin - own[0][0]
        end = own[-1][1] if own else None
        gain = agent_steps = None
        if begin is not None and end is not None and begin != end:
            gain = fit.difference(end, begin)
            num_own = own[-1][0] - generation.agent_steps_begin
            if lead is not None and lead < num_own:
                agent_steps = lead + num_own
        found[entrant] = Gain(
            begin=None if begin is None else intervals[begin],
            end=None if end is None else intervals[end],
            gain=gain,
            agent_steps=agent_steps,
        )
    return found


def _before(
    generation: GenerationRow,
    generations: Mapping[Entrant, GenerationRow],
    rated: Mapping[Entrant, list[tuple[int, Rated]]],
) -> tuple[Rated | None, int | None]:
    """Return the nearest rated weights that a generation's come from, and the agent steps from them
    to its beginning; None where unknown.
    """
    passed: set[Entrant] = set()
    row: GenerationRow | None = generation
    lead: int | None = 0
    # A damaged journal could have a cycle.
    while row is not None and row.parent is not None and row.parent not in passed:
        passed.add(row.parent)
        until = row.parent_agent_steps
        for agent_steps, weights in reversed(rated.get(row.parent, [])):
            if until is None or agent_steps <= until:
                return weights, _longer(lead, since=agent_steps, until=until)
        row = generations.get(row.parent)
        # Nothing of it is rated before the copy, so all that it trained until then lies between.
        lead = None if row is None else _longer(lead, since=row.agent_steps_begin, until=until)
    return None, None


def _longer(steps: int | None, *, since: int, until: int | None) -> int | None:
    return None if steps is None or until is None else steps + until - since


def times_of_generations(events: Iterable[EventRow]) -> dict[Entrant, str]:
    """Return when each generation began.

    Args:
        events: Events of the kinds `BEGINNINGS`, oldest first.
    """
    return {entrant: event.time for event, entrant in begun(events)}


def begun(events: Iterable[EventRow]) -> Iterator[tuple[EventRow, Entrant]]:
    """Yield the events that begin generations, each with the generation."""
    current: dict[str, int] = {}
    for event in events:
        if event.kind not in BEGINNINGS:
            continue
        number = _int(event.data.get("generation"))
        if number is None:
            # The first one, or that after a quarantine: their events do not say it.
            number = 0 if event.kind == "policy_created" else current.get(event.subject, 0) + 1
        current[event.subject] = number
        yield event, trainee_entrant(PolicyId(event.subject), generation=number)


def _int(value: Json) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
