"""The last lines of a run: why it ended, what is saved, how to go on, the champion, what next."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from populations.views.notices import anchor_text, unproven_lines

if TYPE_CHECKING:
    from populations.records.rows import Json

_LIMIT = re.compile(r"stop\.([a-z_]+): ")
"""Beginning of the reason of a run that a limit has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Champion:
    """The best player of a population: its rating, and the ends of its 95% interval.

    Attributes:
        rating_high: None: the interval is open above.
        anchor: Score against ``bot:random`` itself; None: they never met.
        unproven: Why it is not surely better than untrained; None: it is.
    """

    player: str
    rating: float
    rating_low: float
    rating_high: float | None
    unproven: object
    anchor: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """Ending of a run.

    Attributes:
        run_dir: Its directory.
        state: ``finished``, ``stopped`` or ``failed``.
        reason: Reason of the end, in words.
        agent_steps: Agent steps that were trained.
        champions: Champion of each population; empty while no player is rated.
        limits: The values of ``stop``, by key.
    """

    run_dir: Path
    state: str
    reason: str
    agent_steps: int
    champions: Mapping[str, Champion]
    limits: Mapping[str, Json]

    @property
    def raised(self) -> str:
        """An override with which a finished run goes on; empty where it needs none."""
        limit = _LIMIT.match(self.reason)
        value = self.limits.get(limit[1]) if limit is not None else None
        if self.state != "finished" or limit is None or value is None:
            return ""
        # Results and shares have no double.
        if limit[1] in ("evaluation", "success_rate") or not isinstance(value, int | float):
            return f"stop.{limit[1]}=null"
        # A rating has no zero to double from: 100 Elo more.
        more = value + 100 if limit[1] == "rating" else 2 * value
        # 15 digits: no exponent below 10^15 steps, and no rest of a binary fraction.
        return f"stop.{limit[1]}={more:.15g}"


def last_lines(ending: Ending) -> Iterator[str]:
    """Yield the lines that `arena launch` prints when a run has ended."""
    run = shlex.quote(str(ending.run_dir))
    # As every command says that it failed.
    what = "arena: the run failed" if ending.state == "failed" else ending.state
    yield f"{what}: {ending.reason}"
    logs = shlex.quote(str(ending.run_dir / "logs"))
    # A run may end in good order without training: learners that fail at once, or a tiny limit.
    if ending.agent_steps == 0:
        yield "nothing was trained: 0 agent steps are committed"
        yield f"  the learners' logs may say why: {logs}; if not, raise what stop says"
    saved = "what was committed is saved" if ending.state == "failed" else "everything is saved"
    yield f"{saved} in {run}; to go on:"
    yield f"  arena launch --resume --run-dir {run} {ending.raised}".rstrip()
    if ending.state == "failed":
        yield f"  before that: the learners' logs are in {logs}"
    if not ending.champions:
        yield "champion: none yet, since no player is rated"
        return
    for name, one in ending.champions.items():
        of = f" of {name}" if len(ending.champions) > 1 else ""
        rating = (
            # Nobody took a point from it.
            f"{one.rating_low:z.0f}+"
            if one.rating_high is None
            else f"{one.rating:z.0f} [{one.rating_low:z.0f}, {one.rating_high:z.0f}]"
        )
        yield f"champion{of}: {one.player}, rating {rating}"
        if score := anchor_text(one.anchor):
            yield f"  {score}"
        yield from unproven_lines([one.unproven])
    proven = [name for name, one in ending.champions.items() if one.unproven is None]
    if len(proven) == len(ending.champions):
        yield f"next: arena export {run}"
    else:
        # What has learned nothing is no champion to ship.
        yield from (f"next: arena export {run} --population {name}" for name in proven)


def make_ending(
    status: Mapping[str, Json],
    *,
    run_dir: Path,
    limits: Mapping[str, Json],
    holds: str | None = None,
) -> Ending:
    """Take from a run's status what the last lines say.

    Args:
        status: Document of `arena league RUN status --json`.
        run_dir: The run's directory.
        limits: The values of ``stop``, by key.
        holds: The limit for which a finished run was not gone on with.
    """
    champions = cast("Mapping[str, Mapping[str, float]]", status["champion"])
    return Ending(
        run_dir=run_dir,
        state=str(status["state"]),
        reason=holds or str(status["reason"]),
        agent_steps=int(cast("int", status["agent_steps"])),
        champions={
            name: Champion(
                player=str(one["player"]),
                rating=one["rating"],
                rating_low=one["rating_low"],
                rating_high=one["rating_high"],
                unproven=one["unproven"],
                anchor=one.get("anchor"),
            )
            for name, one in champions.items()
        },
        limits=limits,
    )


def say_how_it_ended(
    run_dir: Path, *, holds: str | None, tell: Callable[[str], None]
) -> dict[str, Json]:
    """Say the last lines of a run, and return its status.

    Args:
        run_dir: The run's directory; the run is closed.
        holds: The limit for which a finished run was not gone on with.
        tell: Takes the lines.
    """
    from populations.inspection.views import Inspection, cyclicity, document, fits
    from populations.views.notices import cyclic_warnings, misfit_warnings

    with closing(Inspection.open(run_dir)) as inspection:
        status = document(inspection, "status")
        warnings = [
            *misfit_warnings(fits(inspection), run=run_dir),
            *cyclic_warnings(cyclicity(inspection), run=run_dir),
        ]
        limits = inspection.run_file.config.stop.model_dump(mode="json")
    ending = make_ending(status, run_dir=run_dir, limits=limits, holds=holds)
    for line in (*warnings, *last_lines(ending)):
        tell(line)
    return status
