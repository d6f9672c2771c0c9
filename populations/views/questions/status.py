"""State of a run: committed counts, and live figures while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arena.checkpoints.shapes import num_parameters
from populations.controller.indexes.pbt_decisions import RECALLED, PbtDecisions
from populations.controller.indexes.raised_alerts import CLEARED, RAISED, resumed
from populations.controller.server.live_status import STORAGE, paused_alert
from populations.league.standings import RATING
from populations.records.rows import Json
from populations.storage.lock import lock_holder
from populations.storage.status import read_status
from populations.views.questions.anchor import anchor_score
from populations.views.questions.inspection import Document, Inspection
from populations.views.questions.unproven import unproven


def status_view(run: Inspection, population: str | None) -> Document:
    """Return the state of the run: committed counts, and live figures while it runs."""
    tables, row = run.tables, run.tables.run
    holder = lock_holder(run.run_dir)
    state: str = row.state
    # The kernel frees the lock when its holder dies, so the journal's word is out of date.
    if row.state == "running" and holder is None:
        state = "crashed"
    # A dead controller's last figures would pass for live ones.
    live = (read_status(run.run_dir) or {}) if state == "running" else {}
    return {
        "state": state,
        "reason": row.reason,
        "pid": holder,
        "epoch": row.epoch,
        "endpoint": live.get("endpoint"),
        "store_endpoint": live.get("store_endpoint"),
        "phase": live.get("phase"),
        "alerts": _alerts(run, live, is_running=state == "running"),
        "elapsed_s": row.elapsed_s,
        "agent_steps": row.agent_steps,
        "matches": row.matches,
        "assignments_finished": row.assignments_finished,
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
                **best.picked("player", "checkpoint", *RATING),
                "anchor": anchor_score(run, name, best),
                "unproven": unproven(run, name, best),
            }
            for name, best in run.champions(population).items()
        },
    }


def _parameters(run: Inspection) -> Document:
    """Return the number of weights of each population's networks, which are all alike."""
    newest = {p.population: p.checkpoint for p in run.tables.policies.values() if p.checkpoint}
    return {name: num_parameters(run.run_dir / key) for name, key in newest.items()}


def _lesson(run: Inspection) -> Document | None:
    """Return the lesson that is trained in, counted from 1, and its end; None: there is none."""
    lessons, index = run.run_file.config.environment.curriculum, run.tables.run.lesson
    if not lessons:
        return None
    return {"number": index + 1, "lessons": len(lessons), **lessons[index].model_dump(mode="json")}


def _evaluation(run: Inspection) -> Document:
    """Return evaluation's share of learner seconds when training ended last, else until now."""
    row = run.tables.run
    # The share asked for ends with training: final matches would raise the journal's.
    last = run.reader.events(kinds=["training_stopped"], limit=1, newest=True)
    reached = last[0].data.get("evaluation_share") if last else None
    spent_s = row.training_s + row.evaluation_s
    if reached is None and spent_s > 0.0:
        reached = row.evaluation_s / spent_s
    return {"share_asked": run.run_file.config.evaluation.share, "share_reached": reached}


def _pbt(run: Inspection) -> Document:
    """Count decisions of PBT that were due and made, with reasons for those that wait."""
    decisions = PbtDecisions.from_events(run.reader.recalled_events(kinds=RECALLED))
    config = run.run_file.config
    settings = {name: config.pbt_of(name) for name in config.populations}
    return decisions.document(run.tables, pbt=settings)


def _alerts(run: Inspection, live: Mapping[str, Json], *, is_running: bool) -> list[Any]:
    """Return the alerts: by the live figures, else by the events."""
    if isinstance(told := live.get("alerts"), list) and told:
        return told
    alerts: list[Any] = resumed(run.reader.recalled_events(kinds=[RAISED, CLEARED])).documents()
    # A full disk may have refused the live figures, too, so its alert is derived from events. The
    # last one of these decides: after the others it has recovered.
    kinds = [STORAGE, "storage_recovered", "paused", "continued", "controller_started"]
    last = run.reader.events(kinds=kinds, limit=1, newest=True)
    if is_running and last and last[0].kind in (STORAGE, "paused"):
        reason = str(last[0].data["reason"])
        alerts.append(paused_alert(reason, is_storage=last[0].kind == STORAGE))
    return alerts
