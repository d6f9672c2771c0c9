"""Life of a policy or ghost: what happened to it and why, and what each generation has gained.

It is made of the documents of events and generations, which a page has already. Gains are by one
fit of all rated checkpoints: ratings that generations were recorded with are of the fits of their
times, and those cannot be compared.

Tests: `tests/populations/views/test_lives.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from arena.types import Entrant, PolicyId
from populations.league.names import Subject
from populations.records.rows import Document, GenerationRow, Json
from populations.views.sentences import data_of
from populations.views.wording import is_number

if TYPE_CHECKING:
    from populations.ratings.results import Rated
    from populations.views.questions.inspection import CheckpointFit, Inspection

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


def gains(
    fit: CheckpointFit, generations: Mapping[Entrant, GenerationRow]
) -> dict[Entrant, dict[str, Any]]:
    """Return the `FIGURES` of each generation, None where they are unknown.

    ``elo_begin`` is the rating of the weights that it began with, or of the nearest rated ones
    before; of those that began fresh that of their first rated ones. ``elo_end`` is that of its
    newest rated weights, and ``elo_gain`` the difference, if these are others.
    ``elo_gain_agent_steps`` are those trained between the two weights, unless earlier generations
    trained more of them than this one.

    Args:
        fit: Rows with the ratings of the checkpoints.
        generations: Generations to look at, those of their lines included.
    """
    tables, intervals = fit.tables, fit.intervals()
    unknown = (None, None, None)
    rated: defaultdict[Entrant, list[tuple[int, Rated]]] = defaultdict(list)
    for row in tables.checkpoints.values():
        weights = (tables.policies[row.policy].population, Entrant(row.weights_digest))
        if weights in intervals:
            entrant = row.trainee
            rated[entrant].append((row.agent_steps, weights))
    for line in rated.values():
        line.sort()
    found = {}
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
        ends = [unknown if weights is None else intervals[weights] for weights in (begin, end)]
        values = (*ends[0], *ends[1], *(gain or unknown), agent_steps)
        found[entrant] = dict(zip(FIGURES, values, strict=True))
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


def generations_of(run: Inspection, population: str | None = None) -> list[Document]:
    """Return generations with their times, and with Elo at their begin and end by one fit."""
    known = gains(run.rated, run.history().generations)
    events = run.reader.events(kinds=BEGINNINGS)
    told = ({**row.data, "kind": row.kind, "subject": row.subject} for row in events)
    begins = zip(begun(told), events, strict=True)
    times = {(row.subject, number): row.time for (_, number), row in begins}
    found = []
    for line in run.generations(population):
        policy, number = str(line["policy"]), line["generation"]
        found.append(
            {
                **line,
                "time_begin": times.get((policy, number)),
                "time_end": times.get((policy, number + 1)),
                **known[line["entrant"]],
            }
        )
    return found


Event = Mapping[str, Json]
"""Document of an event."""

GHOST = "ghost_created"

KINDS = (
    *BEGINNINGS,
    *("promoted", "retired", "quarantined"),
    *("exploit_abandoned", "exploit_failed", "explore_failed", "fell_back"),
    *("checkpoint_corrupt", "checkpoint_restored", "policy_restored"),
    *(GHOST, "ghosts_thinned", "ghost_corrupt", "ghost_restored", "ghost_adopted"),
    *("champion", "pinned", "unpinned", "export_due"),
)
"""Kinds of the events that a life is made of."""


def life_of(
    player: str, *, generations: Iterable[Document], events: Iterable[Event]
) -> list[Document]:
    """Return the entries of a player's life.

    Args:
        player: Policy or ghost by its full name.
        generations: Generations of the view ``lineage``.
        events: Events of the view ``events``, oldest first.
    """
    policy, _, steps = player.partition("@")
    subject = Subject(policy=PolicyId(policy), agent_steps=int(steps) if steps else None)
    return list(entries(events, subject, generations=generations))


def entries(
    events: Iterable[Event], subject: Subject, *, generations: Iterable[Document]
) -> Iterator[Document]:
    """Yield the entries of a life.

    Args:
        events: Events, oldest first; those of other kinds than `KINDS` are left out.
        subject: Player that it is about.
        generations: Generations with what each has gained, by `generations_of`.
    """
    gained = {line["generation"]: line for line in generations if line["policy"] == subject.policy}
    events = [one for one in events if one["kind"] in KINDS and is_about(one, subject)]
    own = (one for one in events if one["subject"] == subject.policy)
    begins = {event["sequence"]: number for event, number in begun(own)}
    generation, until = 0, subject.agent_steps
    ghosts: list[Event] = []
    for event in events:
        # A ghost has no part in what its policy did after it was left.
        is_later = until is not None and (_steps(event, subject) or 0) > until
        if is_later and event["subject"] != subject.player:
            continue
        if event["kind"] == GHOST:
            ghosts.append(event)
            continue
        yield from _ghosts(ghosts, subject, generation)
        ghosts = []
        if (number := begins.get(event["sequence"])) is not None:
            if number > generation:
                yield from _gained(gained.get(generation), time=event["time"])
            generation = number
        yield _entry(event, subject, generation)
    yield from _ghosts(ghosts, subject, generation)
    if until is None:
        yield from _gained(gained.get(generation), time=None)


def is_about(event: Event, subject: Subject) -> bool:
    """Return whether an event belongs to the life of a player."""
    policy, name = str(subject.policy), str(event["subject"])
    if name == policy or event.get("donor") == policy:
        return True
    if name.startswith(f"{policy}@"):
        # Other ghosts count by two events only: that they were left, and that they led.
        return name == subject.player or event["kind"] in (GHOST, "champion")
    previous = str(event.get("previous", ""))
    if event["kind"] == "champion":
        return previous.partition("@")[0] == policy
    removed = event.get("ghosts")
    return (
        event["kind"] == "ghosts_thinned"
        and isinstance(removed, list)
        and subject.player in removed
    )


def _steps(event: Event, subject: Subject) -> int | None:
    """Return the policy's agent steps at an event, if it says them."""
    own = str(event["subject"]).partition("@")[0] == subject.policy
    # A donor had other agent steps than the policy that the event is about.
    steps = event.get("agent_steps" if own else "donor_agent_steps")
    return steps if isinstance(steps, int) and is_number(steps) else None


def _entry(event: Event, subject: Subject, generation: int) -> Document:
    return {
        "time": event["time"],
        "agent_steps": _steps(event, subject),
        "generation": generation,
        "kind": event["kind"],
        "sentence": event["sentence"],
        "data": {"subject": event["subject"], **data_of(event)},
    }


def _ghosts(ghosts: list[Event], subject: Subject, generation: int) -> Iterator[Document]:
    """Yield one entry about ghosts that were left one after the other."""
    if len(ghosts) < 2:
        yield from (_entry(event, subject, generation) for event in ghosts)
        return
    first, last = ghosts[0], ghosts[-1]
    begin, end = _steps(first, subject), _steps(last, subject)
    yield {
        "time": last["time"],
        "agent_steps": end,
        "generation": generation,
        "kind": GHOST,
        "sentence": f"{subject.policy} left {len(ghosts)} ghosts, from {first['subject']} to "
        f"{last['subject']}",
        "data": {
            "ghosts": len(ghosts),
            "first": first["subject"],
            "last": last["subject"],
            "first_agent_steps": begin,
            "last_agent_steps": end,
        },
    }


def _gained(line: Document | None, *, time: Json) -> Iterator[Document]:
    """Yield the entry that sums up a generation, if its ratings are known."""
    if line is None or line["elo_end"] is None:
        return
    begin, end = line["agent_steps_begin"], line["agent_steps_end"]
    trained = None if end is None else end - begin
    during = f"Generation {line['generation']}{' so far' if end is None else ''}"
    steps = "" if trained is None else f" in {trained:,} agent steps"
    told = f"{during} was rated {line['elo_end']:z.0f} Elo"
    if line["elo_gain"] is not None:
        gain = line["elo_gain"]
        told = (
            f"{during} {'gained' if gain >= 0.0 else 'lost'} {abs(gain):z.0f} Elo "
            f"[{line['elo_gain_low']:+z.0f}, {line['elo_gain_high']:+z.0f}]{steps}: "
            f"{line['elo_begin']:z.0f} -> {line['elo_end']:z.0f}"
        )
    yield {
        "time": time,
        "agent_steps": end,
        "generation": line["generation"],
        "kind": "gained",
        "sentence": told,
        "data": {**{key: line[key] for key in FIGURES}, "agent_steps_trained": trained},
    }
