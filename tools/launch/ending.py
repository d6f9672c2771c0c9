"""The last lines of a run: why it ended, what is saved, how to go on, the champion, what next."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from populations.views.notices import anchor_text, unproven_lines

from ..terminal.output import tell

if TYPE_CHECKING:
    from populations.records.rows import Json

_LIMIT = re.compile(r"stop\.([a-z_]+): ")
"""Beginning of the reason of a run that a limit has ended."""


def raised(state: object, reason: str, limits: Mapping[str, Json]) -> str:
    """Return an override with which a finished run goes on; empty where it needs none.

    Args:
        state: ``finished``, ``stopped`` or ``failed``.
        reason: Reason of the end, in words.
        limits: The values of ``stop``, by key.
    """
    limit = _LIMIT.match(reason)
    value = limits.get(limit[1]) if limit is not None else None
    if state != "finished" or limit is None or value is None:
        return ""
    # Results and shares have no double.
    if limit[1] in ("evaluation", "success_rate") or not isinstance(value, int | float):
        return f"stop.{limit[1]}=null"
    # A rating has no zero to double from: 100 Elo more.
    more = value + 100 if limit[1] == "rating" else 2 * value
    # 15 digits: no exponent below 10^15 steps, and no rest of a binary fraction.
    return f"stop.{limit[1]}={more:.15g}"


def last_lines(
    status: Mapping[str, Json],
    *,
    run_dir: Path,
    limits: Mapping[str, Json],
    holds: str | None = None,
) -> Iterator[str]:
    """Yield the lines that `arena launch` prints when a run has ended.

    Args:
        status: Document of `arena league RUN status --json`.
        run_dir: The run's directory.
        limits: The values of ``stop``, by key.
        holds: The limit for which a finished run was not gone on with.
    """
    run, state, reason = shlex.quote(str(run_dir)), status["state"], holds or str(status["reason"])
    # As every command says that it failed.
    what = "arena: the run failed" if state == "failed" else state
    yield f"{what}: {reason}"
    logs = shlex.quote(str(run_dir / "logs"))
    # A run may end in good order without training: learners that fail at once, or a tiny limit.
    if status["agent_steps"] == 0:
        yield "nothing was trained: 0 agent steps are committed"
        yield f"  the learners' logs may say why: {logs}; if not, raise what stop says"
    saved = "what was committed is saved" if state == "failed" else "everything is saved"
    yield f"{saved} in {run}; to go on:"
    yield f"  arena launch --resume --run-dir {run} {raised(state, reason, limits)}".rstrip()
    if state == "failed":
        yield f"  before that: the learners' logs are in {logs}"
    champions = cast("Mapping[str, Mapping[str, Any]]", status["champion"])
    if not champions:
        yield "champion: none yet, since no player is rated"
        return
    for name, one in champions.items():
        of = f" of {name}" if len(champions) > 1 else ""
        low, high = one["rating_low"], one["rating_high"]
        # Nobody took a point from it.
        rating = (
            f"{low:z.0f}+" if high is None else f"{one['rating']:z.0f} [{low:z.0f}, {high:z.0f}]"
        )
        yield f"champion{of}: {one['player']}, rating {rating}"
        if score := anchor_text(one.get("anchor")):
            yield f"  {score}"
        yield from unproven_lines([one["unproven"]])
    proven = [name for name, one in champions.items() if one["unproven"] is None]
    if len(proven) == len(champions):
        yield f"next: arena export {run}"
    else:
        # What has learned nothing is no champion to ship.
        yield from (f"next: arena export {run} --population {name}" for name in proven)


def say_how_it_ended(run_dir: Path, *, holds: str | None) -> dict[str, Json]:
    """Say the last lines of a run, and return its status.

    Args:
        run_dir: The run's directory; the run is closed.
        holds: The limit for which a finished run was not gone on with.
    """
    from populations.views.notices import cyclic_warnings, misfit_warnings
    from populations.views.questions.inspection import Inspection
    from populations.views.views import document

    with closing(Inspection.open(run_dir)) as inspection:
        status = document(inspection, "status")
        warnings = [
            *misfit_warnings(inspection.fits(), run=run_dir),
            *cyclic_warnings(inspection.cyclicity(), run=run_dir),
        ]
        limits = inspection.run_file.config.stop.model_dump(mode="json")
    lines = last_lines(status, run_dir=run_dir, limits=limits, holds=holds)
    for line in (*warnings, *lines):
        tell(line)
    return status
