"""Life of a policy or ghost: what happened to it and why, as sentences with their numbers.

Tests: `tests/populations/inspection/test_lives.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any, cast

from arena.errors import ConfigError
from arena.types import PlayerId, PolicyId
from populations.inspection.documents.gains import (
    BEGINNINGS,
    Gain,
    begun,
    checkpoint_fit,
    gains,
)
from populations.inspection.inspection import Document, Inspection
from populations.inspection.sentences import event_document, event_of
from populations.inspection.wording import is_number
from populations.league.names import Subject, find_player
from populations.records.rows import EventRow, GenerationRow, Json

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
    tables, fit = checkpoint_fit(run)
    history = run.history()
    events = run.reader.events(kinds=KINDS)
    row = tables.policies[subject.policy]
    known = gains(tables, fit, history.generations)
    of_policy = {
        one.generation: (one, known[one.entrant])
        for one in history.generations.values()
        if one.policy == subject.policy
    }
    ghost = tables.ghosts.get(PlayerId(subject.player))
    return {
        "run": tables.run.run,
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
        "entries": list(entries(events, subject, generations=of_policy)),
    }


def life_of(
    player: str, *, lineage: Mapping[str, Json], events: Iterable[Mapping[str, Json]]
) -> list[Document]:
    """Return the entries of a player's life, from documents that are there: no second fit.

    Args:
        player: Policy or ghost by its full name.
        lineage: Document of the view ``lineage``.
        events: Events of the view ``events``, oldest first.
    """
    policy, _, steps = player.partition("@")
    subject = Subject(policy=PolicyId(policy), agent_steps=int(steps) if steps else None)
    lines = cast("list[dict[str, Json]]", lineage["generations"])
    own = [line for line in lines if line["policy"] == policy]
    return list(
        entries(
            (event_of(one) for one in events if one["kind"] in KINDS),
            subject,
            generations={
                int(cast("int", line["generation"])): (_generation(line), Gain.from_document(line))
                for line in own
            },
        )
    )


def _generation(line: Mapping[str, Json]) -> GenerationRow:
    known: dict[str, Any] = {one.name: line[one.name] for one in fields(GenerationRow)}
    return GenerationRow(**known)


def entries(
    events: Iterable[EventRow],
    subject: Subject,
    *,
    generations: dict[int, tuple[GenerationRow, Gain]],
) -> Iterator[Document]:
    """Yield the entries of a life.

    Args:
        events: Events of the kinds `KINDS`, oldest first.
        subject: Player that it is about.
        generations: Generations of its policy, with what each has gained.
    """
    events = list(events)
    begins = {
        event.sequence: entrant
        for event, entrant in begun(events)
        if event.subject == subject.policy
    }
    generation, until = 0, subject.agent_steps
    ghosts: list[EventRow] = []
    for event in events:
        if not _is_about(event, subject):
            continue
        # What its policy did after a ghost was left is none of the ghost's.
        is_later = until is not None and (_steps(event, subject) or 0) > until
        if is_later and event.subject != subject.player:
            continue
        if event.kind == GHOST:
            ghosts.append(event)
            continue
        yield from _ghosts(ghosts, subject, generation)
        ghosts = []
        if event.sequence in begins:
            number = int(begins[event.sequence].rpartition("#")[2])
            if number > generation:
                yield from _gained(generations, generation, time=event.time)
            generation = number
        yield _entry(event, subject, generation)
    yield from _ghosts(ghosts, subject, generation)
    if until is None:
        yield from _gained(generations, generation, time=None)


def _is_about(event: EventRow, subject: Subject) -> bool:
    policy, name = str(subject.policy), event.subject
    if name == policy or event.data.get("donor") == policy:
        return True
    if name.startswith(f"{policy}@"):
        # Of other ghosts only that they were left, and that they led.
        return name == subject.player or event.kind in (GHOST, "champion")
    previous = str(event.data.get("previous", ""))
    if event.kind == "champion":
        return previous.partition("@")[0] == policy
    gone = event.data.get("ghosts")
    return event.kind == "ghosts_thinned" and isinstance(gone, list) and subject.player in gone


def _steps(event: EventRow, subject: Subject) -> int | None:
    """Return the policy's agent steps at an event, if it says them."""
    own = event.subject.partition("@")[0] == subject.policy
    # As a donor it had others than the policy that the event is about.
    steps = event.data.get("agent_steps" if own else "donor_agent_steps")
    return steps if isinstance(steps, int) and is_number(steps) else None


def _entry(event: EventRow, subject: Subject, generation: int) -> Document:
    document = event_document(event)
    return {
        "time": event.time,
        "agent_steps": _steps(event, subject),
        "generation": generation,
        "kind": event.kind,
        "sentence": document["sentence"],
        "data": {"subject": event.subject, **event.data},
    }


def _ghosts(ghosts: list[EventRow], subject: Subject, generation: int) -> Iterator[Document]:
    """Yield one entry about ghosts that were left one after the other."""
    if len(ghosts) < 2:
        yield from (_entry(event, subject, generation) for event in ghosts)
        return
    first, last = ghosts[0], ghosts[-1]
    begin, end = _steps(first, subject), _steps(last, subject)
    yield {
        "time": last.time,
        "agent_steps": end,
        "generation": generation,
        "kind": GHOST,
        "sentence": f"{subject.policy} left {len(ghosts)} ghosts, from {first.subject} to "
        f"{last.subject}",
        "data": {
            "ghosts": len(ghosts),
            "first": first.subject,
            "last": last.subject,
            "first_agent_steps": begin,
            "last_agent_steps": end,
        },
    }


def _gained(
    generations: dict[int, tuple[GenerationRow, Gain]], number: int, *, time: str | None
) -> Iterator[Document]:
    """Yield the entry that sums up a generation, if its ratings are known."""
    row, known = generations.get(number, (None, Gain()))
    if row is None or known.end is None:
        return
    end = row.agent_steps_end
    trained = None if end is None else end - row.agent_steps_begin
    data: dict[str, Json] = {**known.document(), "agent_steps_trained": trained}
    during = f"Generation {number}{' so far' if end is None else ''}"
    steps = "" if trained is None else f" in {trained:,} agent steps"
    if known.gain is None or known.begin is None:
        told = f"{during} was rated {known.end.rating:z.0f} Elo"
    else:
        verb = "gained" if known.gain.rating >= 0.0 else "lost"
        interval = f"[{known.gain.low:+z.0f}, {known.gain.high:+z.0f}]"
        told = (
            f"{during} {verb} {abs(known.gain.rating):z.0f} Elo {interval}{steps}: "
            f"{known.begin.rating:z.0f} -> {known.end.rating:z.0f}"
        )
    yield {
        "time": time,
        "agent_steps": end,
        "generation": number,
        "kind": "gained",
        "sentence": told,
        "data": data,
    }
