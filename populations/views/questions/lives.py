"""Life of a policy or ghost: what happened to it and why, as sentences with their numbers.

It is made of the documents of events and generations, which a page has already.

Tests: `tests/populations/views/test_lives.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from arena.errors import ConfigError
from arena.types import PlayerId, PolicyId
from populations.league.names import Subject, find_player
from populations.records.rows import Json
from populations.views.questions.gains import BEGINNINGS, FIGURES, begun, generations_of
from populations.views.questions.inspection import Document, Inspection
from populations.views.sentences import data_of, event_document
from populations.views.wording import is_number

Event = Mapping[str, Json]
"""Document of an event."""

GHOST = "ghost_created"

KINDS = (
    *BEGINNINGS,
    *("promoted", "retired", "quarantined"),
    *("exploit_abandoned", "exploit_failed", "explore_failed", "fell_back"),
    *("checkpoint_corrupt", "checkpoint_restored", "policy_restored", "counters_lowered"),
    *(GHOST, "ghosts_thinned", "ghost_corrupt", "ghost_restored", "ghost_adopted"),
    *("champion", "pinned", "unpinned", "export_due"),
)
"""Kinds of the events that a life is made of."""


def why_view(run: Inspection, population: str | None, *, player: str | None = None) -> Document:
    """Return the life of a player, oldest first.

    An entry has ``time``, ``agent_steps`` (null: its event does not say it), ``generation``,
    ``kind`` (of the event; ``gained`` sums up a generation), ``sentence`` and ``data``. The life of
    a ghost is that of its policy until its agent steps, and what happened to itself.

    Raises:
        ConfigError: If no player is named, or the run has no such one.
    """
    if player is None:
        raise ConfigError("the view why needs a player, such as player/p003 or p003@120000")
    subject = find_player(player, run.tables, population=population)
    tables, _ = run.rated
    row = tables.policies[subject.policy]
    events = [
        event_document(event)
        for event in run.reader.events(kinds=KINDS)
        if _is_about({**event.data, "kind": event.kind, "subject": event.subject}, subject)
    ]
    ghost = tables.ghosts.get(PlayerId(subject.player))
    return {
        "player": subject.player,
        "population": row.population,
        "policy": row.policy,
        "kind": "policy"
        if subject.agent_steps is None
        else "ghost"
        if ghost is not None
        else "checkpoint",
        "role": row.role,
        "state": row.state,
        "generation": row.generation,
        "agent_steps": row.agent_steps if subject.agent_steps is None else subject.agent_steps,
        "entries": list(entries(events, subject, generations=generations_of(run))),
    }


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
    events = [one for one in events if one["kind"] in KINDS and _is_about(one, subject)]
    own = (one for one in events if one["subject"] == subject.policy)
    begins = {event["sequence"]: number for event, number in begun(own)}
    generation, until = 0, subject.agent_steps
    ghosts: list[Event] = []
    for event in events:
        # What its policy did after a ghost was left is none of the ghost's.
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


def _is_about(event: Event, subject: Subject) -> bool:
    policy, name = str(subject.policy), str(event["subject"])
    if name == policy or event.get("donor") == policy:
        return True
    if name.startswith(f"{policy}@"):
        # Of other ghosts only that they were left, and that they led.
        return name == subject.player or event["kind"] in (GHOST, "champion")
    previous = str(event.get("previous", ""))
    if event["kind"] == "champion":
        return previous.partition("@")[0] == policy
    gone = event.get("ghosts")
    return event["kind"] == "ghosts_thinned" and isinstance(gone, list) and subject.player in gone


def _steps(event: Event, subject: Subject) -> int | None:
    """Return the policy's agent steps at an event, if it says them."""
    own = str(event["subject"]).partition("@")[0] == subject.policy
    # As a donor it had others than the policy that the event is about.
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
