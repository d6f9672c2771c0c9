"""Reasons for which checkpoints stay on disk, as `arena league RUN checkpoints` shows them."""

from __future__ import annotations

from collections.abc import Iterator

from arena.types import Digest
from populations.config.sections import CheckpointsConfig
from populations.league.league import League
from populations.records.rows import CheckpointRow
from populations.records.tables import Tables
from populations.storage.store import milestones, named_by, newest_last

BEST = "best"
"""The best-rated checkpoint of its policy."""


def pins_of(league: League, *, section: CheckpointsConfig) -> dict[str, tuple[str, ...]]:
    """Return the reasons for which each kept checkpoint stays, by its directory.

    ``latest``: a policy continues from it; ``newest``: by ``checkpoints.keep``; ``best``: the
    best-rated one of its policy; ``standing``: a policy's rating is about it; ``milestone``: for
    ever; ``donor``: a pending copy needs it; ``ghost``: a ghost is made from it, or an exploiter
    restarts from it; ``assignment``: an open assignment names it; ``pin``: a user wants it to stay.

    Args:
        league: League of the run.
        section: Rules of retention.
    """
    found: dict[str, dict[str, None]] = {
        row.key: {} for row in league.tables.checkpoints.values() if row.state == "present"
    }
    for key, reason in (*_reasons_of_rows(league), *_reasons_of_age(league.tables, section)):
        if key in found:
            found[key][reason] = None
    return {key: tuple(reasons) for key, reasons in found.items()}


def _reasons_of_rows(league: League) -> Iterator[tuple[str, str]]:
    tables = league.tables
    for policy in tables.policies.values():
        for key in named_by(policy):
            yield key, "latest" if key == policy.checkpoint else "donor"
    for ghost in tables.ghosts.values():
        yield from ((key, "ghost") for key in named_by(ghost))
    for assignment in tables.assignments.values():
        yield from ((key, "assignment") for key in named_by(assignment))
    for ratings in tables.ratings.values():
        for entrant in ratings.best:
            origin = league.checkpoints.get(Digest(entrant))
            if origin is not None:
                yield origin.key, BEST
    for policy in tables.policies.values():
        digest = league.standing_weights(policy)
        if digest is not None:
            yield league.checkpoints[digest].key, "standing"


def _reasons_of_age(tables: Tables, section: CheckpointsConfig) -> Iterator[tuple[str, str]]:
    by_policy: dict[str, list[CheckpointRow]] = {}
    for row in tables.checkpoints.values():
        if row.state == "present":
            by_policy.setdefault(row.policy, []).append(row)
            if row.pinned:
                yield row.key, "pin"
    for rows in by_policy.values():
        rows.sort(key=newest_last)
        newest = rows if section.keep is None else rows[-section.keep :]
        yield from ((row.key, "newest") for row in newest)
        if section.milestones_every_agent_steps is not None:
            steps = section.milestones_every_agent_steps
            yield from ((key, "milestone") for key in milestones(rows, every_agent_steps=steps))
        if section.export_every_agent_steps:
            steps, kept = section.export_every_agent_steps, section.exported_to_keep
            exported = milestones(rows, every_agent_steps=steps, newest=kept)
            yield from ((key, "export") for key in exported)
