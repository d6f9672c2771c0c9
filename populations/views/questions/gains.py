"""Elo that each generation of a policy has gained, by one fit of all rated checkpoints.

Ratings that generations were recorded with are of the fits of their times, and those cannot be
compared.

Tests: `tests/populations/views/test_lives.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass

from arena.types import Entrant, trainee_entrant
from populations.choices import with_names
from populations.league.ratings import Interval
from populations.ratings.results import Rated
from populations.records.rows import GenerationRow, Json
from populations.records.tables import Tables
from populations.views.questions.inspection import Document, Inspection
from populations.views.questions.ratings import CheckpointFit

BEGINNINGS = (
    *("policy_created", "exploited", "explored", "immigrated", "replayed", "reset", "rewound"),
    *("learning_rate_halved", "hyperparameters_changed", "checkpoint_adopted"),
)
"""Kinds of the events that begin a generation; their subjects are policies."""

FIGURES = (
    *("elo_begin", "elo_begin_low", "elo_begin_high", "elo_end", "elo_end_low", "elo_end_high"),
    *("elo_gain", "elo_gain_low", "elo_gain_high", "elo_gain_agent_steps"),
)
"""Keys of a generation's gain in documents."""


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
        unknown = (None, None, None)
        intervals = (self.begin or unknown, self.end or unknown, self.gain or unknown)
        values = (*(end for one in intervals for end in one), self.agent_steps)
        return dict(zip(FIGURES, values, strict=True))


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


def begun(events: Iterable[Mapping[str, Json]]) -> Iterator[tuple[Mapping[str, Json], int]]:
    """Yield the events that begin generations, each with the generation's number.

    Args:
        events: Events, oldest first.
    """
    current: dict[Json, int] = {}
    for event in events:
        kind, subject, number = event["kind"], event["subject"], event.get("generation")
        if kind not in BEGINNINGS:
            continue
        if not isinstance(number, int) or isinstance(number, bool):
            # The first one, or that after a quarantine: their events do not say it.
            number = 0 if kind == "policy_created" else current.get(subject, 0) + 1
        current[subject] = number
        yield event, number


def plain_generations(run: Inspection, population: str | None) -> list[Document]:
    """Return generations in order of beginning; ``parent`` is the policy and generation of the
    weights.
    """
    return [
        {
            **asdict(row),
            "hyperparameters": with_names(row.hyperparameters, run.space(row.population)),
        }
        for row in run.history().generations.values()
        if population in (None, row.population)
    ]


def generations_of(run: Inspection, population: str | None = None) -> list[Document]:
    """Return generations with their times, and with Elo at their begin and end by one fit."""
    known = gains(*run.rated, run.history().generations)
    events = run.reader.events(kinds=BEGINNINGS)
    told = ({**row.data, "kind": row.kind, "subject": row.subject} for row in events)
    begins = zip(begun(told), events, strict=True)
    times = {(row.subject, number): row.time for (_, number), row in begins}
    found = []
    for line in plain_generations(run, population):
        policy, number = str(line["policy"]), line["generation"]
        found.append(
            {
                **line,
                "time_begin": times.get((policy, number)),
                "time_end": times.get((policy, number + 1)),
                **known[line["entrant"]].document(),
            }
        )
    return found
