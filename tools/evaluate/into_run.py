"""``arena evaluate RUN --into RUN --for 2m``: more evaluation of a run that is not going on.

Tests: `tests/integration/test_evaluate_into.py`, `tests/tools/evaluate/test_into_run.py`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


def evaluate_run(
    players: Sequence[str],
    into: Path | None,
    duration: str | None,
    *,
    not_for_it: Sequence[str],
    trust: bool,
    json_: bool,
) -> None:
    """Evaluate a run for a while under its lock, and print how it ended.

    Args:
        players: Players on the command line: the run alone.
        into: Run directory.
        duration: Time, as the user wrote it.
        not_for_it: Options that were given and belong to a tournament.
        trust: Whether code that its run.yaml names may be imported, wherever it is from.
        json_: Whether to print the final status as JSON.

    Raises:
        ConfigError: If options do not fit, or there is no such run, or nothing to evaluate.
        RunInUse: If the run is going on.
    """
    from arena.errors import ConfigError
    from populations.config.trust import trusted
    from populations.fields import seconds_of

    from ..launch.preflight import look_at_world
    from ..launch.serving import held_run, serve

    # As in `arena launch`: learners occupy the cores.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if into is None:
        raise ConfigError(f"--for {duration} needs --into: the run that is evaluated")
    if duration is None:
        raise ConfigError(f"--into {into} needs --for: a time, as 90s, 2m or 1h30m")
    try:
        seconds = seconds_of(duration)
    except ValueError as error:
        raise ConfigError(f"--for {error}, got {duration!r}") from error
    if [Path(player).resolve() for player in players] != [into.resolve()]:
        raise ConfigError(
            f"--into evaluates the players of one run, so {into} must be the only PLAYER, got "
            f"{' '.join(players)}"
        )
    if not_for_it:
        raise ConfigError(
            f"--into takes no --{', --'.join(not_for_it)}: the run's own scheduler decides"
        )
    with held_run(into) as found:
        run_file = trusted(found, into, trust=trust)
        world = look_at_world(run_file, run_file.config, run_dir=into)
        serve(
            into,
            launch_directory=run_file.launch_directory,
            world=world,
            evaluate_s=seconds,
            json_=json_,
        )
