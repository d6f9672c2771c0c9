"""Views of a run itself: its state, and the work of its learners."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from populations.storage.lock import lock_holder
from populations.views.notices import alert_lines, told_of
from populations.views.parts import (
    Column,
    Document,
    Kind,
    Line,
    Pairs,
    Room,
    Row,
    Section,
    Table,
    picked,
    player,
    said,
)
from populations.views.view import View

if TYPE_CHECKING:
    from populations.records.rows import Json
    from populations.views.questions.inspection import Inspection

COUNTS = ("agent_steps", "matches", "assignments_finished", "checkpoints", "ghosts", "exploits")
KINDS: Mapping[str, Kind] = {
    **dict.fromkeys((*COUNTS, "agent_steps_per_s"), "count"),
    "elapsed_s": "duration",
    "quarantined": "players",
}
"""Kinds of numbers in the status, if they are not plain values."""

NESTED = ("alerts", "champion", "learners", "learners_waiting")
RATED = "{player:player}, rating {rating:elo}|, 95% {rating:interval}"
TITLES = {"elapsed_s": "elapsed", "exploits": "copies"}
"""Titles of numbers, if they differ from their keys."""


def title_of(key: str) -> str:
    """Return the title of a number by its key in documents."""
    return TITLES.get(key, key.replace("_", " "))


def status_document(run: Inspection, population: str | None) -> Document:
    """Return the state of the run: committed counts and, while it runs, live numbers."""
    from populations.league.standings import RATING
    from populations.storage.status import read_status
    from populations.views.questions.champions import anchor_score, unproven

    tables, row = run.tables, run.tables.run
    holder = lock_holder(run.run_dir)
    state: str = row.state
    # The kernel releases the lock when a controller dies, so the state in the journal is outdated.
    if row.state == "running" and holder is None:
        state = "crashed"
    # Without a controller, its last status must not be shown as live.
    live = (read_status(run.run_dir) or {}) if state == "running" else {}
    return {
        "state": state,
        "reason": row.reason,
        "pid": holder,
        "epoch": row.epoch,
        **{key: live.get(key) for key in ("endpoint", "store_endpoint", "phase")},
        "alerts": _alerts(run, live, is_running=state == "running"),
        **picked(row, "elapsed_s", "agent_steps", "matches", "assignments_finished"),
        "checkpoints": sum(1 for c in tables.checkpoints.values() if c.state == "present"),
        "ghosts": len(tables.ghosts),
        "parameters": _parameters(run),
        "exploits": row.exploits,
        "lesson": _lesson(run),
        "evaluation": live.get("evaluation") or _evaluation(run),
        "pbt": _pbt(run),
        "quarantined": [p.policy for p in tables.policies.values() if p.state == "quarantined"],
        "agent_steps_per_s": live.get("agent_steps_per_s"),
        "learners": live.get("learners", []),
        "learners_waiting": live.get("learners_waiting"),
        "champion": {
            name: {
                **picked(best, "player", "checkpoint", *RATING),
                "anchor": anchor_score(run, name, best),
                "unproven": unproven(run, name, best),
            }
            for name, best in run.champions(population).items()
        },
    }


def _parameters(run: Inspection) -> Document:
    """Return the number of parameters of each population's networks, which all have one shape."""
    from arena.checkpoints.shapes import num_parameters

    newest = {p.population: p.checkpoint for p in run.tables.policies.values() if p.checkpoint}
    return {name: num_parameters(run.run_dir / key) for name, key in newest.items()}


def _lesson(run: Inspection) -> Document | None:
    """Return the current lesson, counted from 1, with its settings; None without a curriculum."""
    lessons, index = run.run_file.config.environment.curriculum, run.tables.run.lesson
    if not lessons:
        return None
    return {"number": index + 1, "lessons": len(lessons), **lessons[index].model_dump(mode="json")}


def _evaluation(run: Inspection) -> Document:
    """Return the configured and the actual share of evaluation in learner time, in training."""
    row = run.tables.run
    # The configured share applies to training; final matches would raise the share in the journal.
    reached = row.share_reached
    spent_s = row.training_s + row.evaluation_s
    if reached is None and spent_s > 0.0:
        reached = row.evaluation_s / spent_s
    return {"share_asked": run.run_file.config.evaluation.share, "share_reached": reached}


def _pbt(run: Inspection) -> Document:
    """Return numbers of PBT's decisions that were due and made, and reasons for postponements."""
    from populations.pbt.scheduler import decisions_document

    config = run.run_file.config
    settings = {name: config.pbt_of(name) for name in config.populations}
    return decisions_document(run.tables, pbt=settings)


def _alerts(run: Inspection, live: Mapping[str, Json], *, is_running: bool) -> list[Any]:
    """Return the active alerts: those of the live status or, without one, those of the rows."""
    from populations.controller.indexes.alert_kinds import resumed
    from populations.controller.server.live_status import STORAGE, paused_alert

    if isinstance(told := live.get("alerts"), list) and told:
        return told
    alerts: list[Any] = resumed(run.tables.alerts.values()).documents()
    # A full disk may have refused the live status, too, so its alert is derived from events. The
    # last event of these kinds decides, as the other kinds mean that the disk has recovered.
    kinds = [STORAGE, "storage_recovered", "paused", "continued", "controller_started"]
    last = run.reader.events(kinds=kinds, limit=1, newest=True)
    if is_running and last and last[0].kind in (STORAGE, "paused"):
        reason = str(last[0].data["reason"])
        alerts.append(paused_alert(reason, is_storage=last[0].kind == STORAGE))
    return alerts


def status_rows(document: Document) -> list[Row]:
    """Return a row for each key of the status."""
    lines = alert_lines(document)
    shown = {**document, "alerts": "  ".join(lines) or None}
    return [{"key": key, "value": value} for key, value in shown.items() if key != "schema"]


def status(document: Document, room: Room) -> Iterator[Section]:
    """Yield alerts first, because they require action, and then the state as pairs."""
    if alerts := alert_lines(document):
        yield Section(below=[said(text, most_lines=4) for text in alerts], is_alert=True)
    yield Section(body=Pairs([*_figures(document, room)]))


def _figures(document: Document, room: Room) -> Iterator[tuple[str, Line]]:
    for key, value in document.items():
        if key in ("schema", *NESTED) or value in (None, [], {}):
            continue
        kind = KINDS.get(key, "listed" if isinstance(value, Mapping) else "value")
        yield title_of(key), Line(f"{{value:{kind}}}", {"value": value})
    for name, best in document.get("champion", {}).items():
        # The name of the population is needed only if there are several.
        of = f" of {name}" if len(room.populations) > 1 else ""
        yield f"champion{of}", Line(RATED, best)
        yield from (("", said(line.strip())) for line in told_of(best))
    if waiting := document.get("learners_waiting"):
        yield "learners waiting", Line("{n} for a place to run", {"n": waiting})
    for row in document.get("learners", ()):
        rest = {key: row[key] for key in row if key != "learner" and row[key] is not None}
        yield f"learner {row.get('learner') or '-'}", Line("{rest:listed}", {"rest": rest})


def learners_document(run: Inspection, population: str | None) -> Document:
    """Return each learner that has joined, oldest first.

    Shares are of the time from joining to leaving (or to the run's last event); ``share_waiting``
    is the time without a committed assignment. ``speeds`` are agent steps per second by population,
    and ``match_s`` seconds of an evaluation match, both measured recently: budgets of training and
    the choice of evaluating learners follow them. ``restarts`` counts earlier learners in its slot.
    Learners of one ``group`` have proved equal results; groups are numbered from 1 in the order of
    their first learners. ``learners_waiting`` counts learners that have not started, as the cluster
    has no room for them.
    """
    del population  # A learner works for all populations.
    from populations.views.questions.learners import KINDS, accounts

    events = run.reader.events(kinds=KINDS)
    last = run.reader.events(limit=1, newest=True)
    status = status_document(run, None)
    until = last[0].time if last else ""
    rows = accounts(events, run.reader.all_assignments(), status=status, until=until)
    shown = ("state", "phase", "agent_steps_per_s", "learners_waiting")
    return {**{key: status[key] for key in shown}, "learners": rows}


LEARNERS = (
    player("learner"),
    Column("state", "word", is_label=True),
    Column("agent_steps_per_s", "count", "steps/s"),
    Column("mean_agent_steps_per_s", "count", "mean/s"),
    Column("share_training", "percent", "trains", is_label=True),
    Column("share_evaluation", "percent", "evaluates", is_label=True),
    Column("share_waiting", "percent", "waits", is_label=True),
    Column("restarts", drop=1),
    Column("host", "word", drop=2),
    Column("device", "word", drop=3),
    # Learners have a group only in a run that learners of other machines can join.
    Column("group", drop=3),
    Column("assignments", "count", drop=4),
    Column("matches", "count", drop=5),
)


def learners(document: Document, room: Room) -> Iterator[Section]:
    """Yield a table of learners, and a line about the work and the faults of each one."""
    rows = document["learners"]
    if waiting := document.get("learners_waiting"):
        more = "{n} more wait for a place to run: the cluster has no room for them"
        yield Section(below=[Line(more, {"n": waiting})])
    if not rows:
        yield Section(below=[Line("no learner has joined yet")])
        return
    yield Section(
        title=Line("learners, run is {state}", document),
        body=Table(LEARNERS, rows),
        below=[line for row in rows if (line := _work(row))],
    )


def _work(row: Row) -> Line | None:
    """Return a line about a learner's work, or why it waits or has left, and its last fault."""
    parts: list[str] = []
    if row.get("doing"):
        # The progress is in agent steps, and for an evaluation in steps of its matches.
        done = "|, {progress:count} steps so far|, since {since:time} UTC|"
        parts.append("{doing}| {policies:players}" + done)
    if row.get("waits_for"):
        parts.append("waits for {waits_for:sentence}")
    if row.get("left") is not None:
        parts.append("went away at {left:time} UTC: {left_reason}")
    if faults := (row.get("faults") or ()):
        parts.append("{num_faults} faults, the last: {last_fault}")
        row = {**row, "num_faults": len(faults), "last_fault": faults[-1]}
    return Line("{learner:player}: " + "; ".join(parts), row) if parts else None


VIEWS: dict[str, View] = {
    "status": View(document=status_document, flat=status_rows, sections=status),
    "learners": View(
        document=learners_document,
        has_page=True,
        sections=learners,
        limits="learners",
    ),
}
