"""``arena evaluate RUN --into RUN --for 2m``: more evaluation of a run that is not going on.

Tests: `tests/integration/test_evaluate_into.py`, `tests/tools/evaluate/test_into_run.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

_UNITS_S = {"h": 3600.0, "m": 60.0, "s": 1.0}
_TIME = re.compile("".join(rf"(?:(\d{{1,7}}(?:\.\d{{1,3}})?){unit})?" for unit in _UNITS_S))


def parse_time(text: str, *, option: str) -> float:
    """Return the seconds of a time with units: 90s, 2m, 1.5h, 1h30m.

    Raises:
        ConfigError: If it is none, or 0.
    """
    from arena.errors import ConfigError

    match = _TIME.fullmatch(text)
    parts = match.groups(default="0") if match is not None else ("0",) * len(_UNITS_S)
    seconds = sum(
        float(part) * unit_s for part, unit_s in zip(parts, _UNITS_S.values(), strict=True)
    )
    if seconds <= 0.0:
        raise ConfigError(
            f"{option} must be a time above 0 with its unit, as 90s, 2m or 1h30m, got {text!r}"
        )
    return seconds


def evaluate_run(
    players: Sequence[str],
    into: Path | None,
    duration: str | None,
    *,
    not_for_it: Sequence[str],
    json_: bool,
) -> None:
    """Evaluate a run for a while under its lock, and print how it ended.

    Args:
        players: Players on the command line: the run alone.
        into: Run directory.
        duration: Time, as the user wrote it.
        not_for_it: Options that were given and belong to a tournament.
        json_: Whether to print the final status as JSON.

    Raises:
        ConfigError: If options do not fit, or there is no such run, or nothing to evaluate.
        RunInUse: If the run is going on.
    """
    from arena.errors import ConfigError

    from ..launch.serving import held_run, serve
    from ..launch.world import look_at_world

    # As in `arena launch`: learners occupy the cores.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if into is None:
        raise ConfigError(f"--for {duration} needs --into: the run that is evaluated")
    if duration is None:
        raise ConfigError(f"--into {into} needs --for: a time, as 90s, 2m or 1h30m")
    seconds = parse_time(duration, option="--for")
    if [Path(player).resolve() for player in players] != [into.resolve()]:
        raise ConfigError(
            f"--into evaluates the players of one run, so {into} must be the only PLAYER, got "
            f"{' '.join(players)}"
        )
    if not_for_it:
        raise ConfigError(
            f"--into takes no --{', --'.join(not_for_it)}: the run's own scheduler decides"
        )
    with held_run(into) as run_file:
        world = look_at_world(run_file, run_file.config, run_dir=into)
        serve(into, world=world, evaluate_s=seconds, json_=json_)
