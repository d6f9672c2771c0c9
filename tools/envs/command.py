"""`arena envs list` and `arena envs check`: which environments there are, and whether one works."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from populations.views.parts import Column, Table

from ..show.text import print_framed
from ..terminal.options import AsJson, Code
from ..terminal.output import console, paragraphs, print_json, say, tell
from ..terminal.progress import count_progress

if TYPE_CHECKING:
    from arena.envs.checks.conformance import ConformanceReport
    from arena.envs.turn_diff import Difference

app = typer.Typer(help="List environments, or check one.", no_args_is_help=True)

PROBLEMS_EXIT_CODE = 3
DIFFERENT_EXIT_CODE = 3


def list_environments(as_json: AsJson = False) -> None:
    """List the environments that have an id, and how to install the missing ones."""
    from arena.envs.openspiel.game import known_games
    from arena.envs.registry import TWINS, known_environments

    # The source of an id does not matter here, so both lists are merged.
    known = sorted(known_environments() + known_games(), key=lambda environment: environment.id)
    rows = [
        {
            "id": environment.id,
            "package": environment.package,
            "installed": environment.installed,
            "api": environment.apis[0],
            "install": environment.install,
            "batched": environment.id in TWINS,
            "twin": TWINS.get(environment.id),
        }
        for environment in known
    ]
    if as_json:
        print_json({"environments": rows})
        return
    shown = [
        {
            **row,
            "installed": row["installed"] or row["install"],
            "batched": row["batched"] or "",
        }
        for row in rows
    ]
    columns = [Column(key, "word") for key in ("id", "api", "batched", "installed")]
    print_framed(Table(columns, shown), box=None, overflow="ellipsis")
    say(
        "Any other: openspiel:game of OpenSpiel; package.module:factory, which makes a "
        "pettingzoo.AECEnv or ParallelEnv; package.module:Class of a batched game."
    )


def check(
    environment: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="Registry id, openspiel:game, or package.module:factory."
        ),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="Keys of the section environment, as environment.kwargs.max_cycles=10.",
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="ID2", help="Second environment, compared under equal seeds and actions."
        ),
    ] = None,
    games: Annotated[int, typer.Option(min=1, help="Number of games, with --against.")] = 50_000,
    num_envs: Annotated[
        int, typer.Option(min=1, max=65_536, help="Number of games at once, with --against.")
    ] = 256,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="Seconds of measuring speed, without --against.")
    ] = 2.0,
    train: Annotated[
        int,
        typer.Option(min=0, metavar="STEPS", help="Agent steps of a trial training; 0: no trial."),
    ] = 4096,
    time_limit: Annotated[
        float, typer.Option(min=1.0, metavar="S", help="Time limit of the whole check, in seconds.")
    ] = 120.0,
    write: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File for a configuration that arena launch takes."),
    ] = None,
    code: Code = None,
    as_json: AsJson = False,
) -> None:
    """Check an environment: its faults and how to mend them, its speed, a trial training.

    Plays random episodes, runs PettingZoo's own tests, and trains one policy for a moment. All
    faults are listed at once; a stage that takes too long is cut off, and reported. With --against:
    whether two environments are the same game, to the last number.
    """
    import torch

    from arena.errors import ConfigError

    # Batches are small and one core is measured, so more threads would only wait for each other.
    torch.set_num_threads(1)
    if against is not None:
        # A comparison makes both environments with their defaults and suggests no configuration.
        if overrides or write is not None:
            raise ConfigError("--against compares two ids: no KEY=VALUE, no --write")
        _check_against(environment, against, games=games, num_envs=num_envs, as_json=as_json)
        return
    # The file is checked before minutes of work.
    if write is not None and write.exists():
        raise ConfigError(f"--write {write}: there is a file of this name")
    given = _environment_keys(environment, overrides or [])
    _check_alone(
        given,
        seconds=seconds,
        agent_steps=train,
        time_limit=time_limit,
        write=write,
        as_json=as_json,
    )


def _check_alone(
    given: Mapping[str, object],
    *,
    seconds: float,
    agent_steps: int,
    time_limit: float,
    write: Path | None,
    as_json: bool,
) -> None:
    """Check one environment, report, and write a configuration for it.

    Raises:
        typer.Exit: If the environment has problems.
    """
    from arena.envs.checks.time_limit import TimeLimit
    from arena.errors import ArenaError

    from ..terminal.progress import hard_limit, stage_progress
    from .check import check_and_try, print_checked
    from .suggested_preset import left_out

    # The soft limit ends stages by an exception; the hard one ends the process if a call never
    # returns.
    try:
        with stage_progress(time_limit) as show, hard_limit(time_limit):
            limit = TimeLimit(time_limit, tell=show)
            checked = check_and_try(given, seconds=seconds, agent_steps=agent_steps, limit=limit)
    except ArenaError:
        if write is not None:
            tell(f"nothing is written to {write}: agents and spaces are not known")
        raise
    if as_json:
        print_json(checked.document())
    else:
        print_checked(checked)
    # The file is written after printing, so that programs get the document with any exit code.
    if write is not None:
        write.write_text(checked.preset, encoding="utf8")
        said = f"written to {write}: arena launch {write}"
        if checked.problems:
            missing = "; ".join(left_out(checked.report))
            said = (
                f"written to {write}, to be launched once no problem is left; left out: {missing}"
            )
        tell(said)
    if checked.problems:
        raise typer.Exit(PROBLEMS_EXIT_CODE)


def _environment_keys(environment: str, overrides: Sequence[str]) -> dict[str, object]:
    """Return the section ``environment``: an id, and what is set beside it.

    Raises:
        ConfigError: If another section is named, or a key or value is wrong.
    """
    from arena.errors import ConfigError
    from populations.config.overrides import apply_overrides
    from populations.config.run_config import validate_config

    document = apply_overrides({"environment": {"id": environment}}, overrides)
    assert isinstance(document, dict)
    others = [key for key in document if key != "environment"]
    if others:
        raise ConfigError(f"only keys of environment can be checked, got {others[0]}")
    # The call is made for its errors alone: the keys are checked as they were written.
    validate_config(document)
    keys: dict[str, object] = document["environment"]
    return keys


def _check_against(
    environment: str, against: str, *, games: int, num_envs: int, as_json: bool
) -> None:
    from arena.environment_spec import EnvironmentRequest
    from arena.envs.checks.conformance import check_against
    from arena.resolve import code_directory

    # Games are counted, because their lengths differ.
    with count_progress(f"{environment} against {against}", total=games) as progress:
        report = check_against(
            EnvironmentRequest(environment, launch_directory=code_directory()),
            EnvironmentRequest(against, launch_directory=code_directory()),
            num_games=games,
            num_envs=num_envs,
            progress=progress,
        )
    found, (one, other) = report.difference, report.env_steps_per_s
    if as_json:
        print_json(
            {
                "environment": environment,
                "against": against,
                "games": report.games,
                "decisions": report.decisions,
                "equal": found is None,
                "difference": None if found is None else asdict(found),
                "env_steps_per_s": {"environment": one, "against": other},
            }
        )
    else:
        verdict = "the same game" if found is None else "different"
        out = console()
        out.print(f"{environment} against {against}: {verdict}")
        for line in _conformance_lines(report):
            out.print(f"  {line}")
    if found is not None:
        raise typer.Exit(DIFFERENT_EXIT_CODE)


def _conformance_lines(report: ConformanceReport) -> Iterator[str]:
    yield f"{report.games:,} games, {report.decisions:,} decisions compared"
    one, other = report.env_steps_per_s
    # Speeds are 0 if the comparison ended before measuring them.
    if one and other:
        yield (
            f"{one:,.0f} against {other:,.0f} environment steps/s in batches: "
            f"{_times(one / other)} times as many"
        )
    if report.difference is not None:
        yield from _difference_lines(report.difference)


def _times(ratio: float) -> str:
    """Return a ratio with digits that tell also a small one from 0."""
    return f"{ratio:.1f}" if ratio >= 1.0 else f"{ratio:.2g}"


def _difference_lines(found: Difference) -> Iterator[str]:
    whose = "" if found.agent is None else f" of {found.agent}"
    yield f"differs: {found.what}{whose}"
    if found.also:
        yield f"there too: {', '.join(found.also)}"
    if isinstance(found.one, list) and isinstance(found.other, list) and len(found.one) > 1:
        # Only lists have positions; other values are shown whole.
        at = found.position
        if at < min(len(found.one), len(found.other)):
            yield f"first at position {at}: {found.one[at]} against {found.other[at]}"
    yield f"one:   {found.one}"
    yield f"other: {found.other}"
    # A difference between static facts has no episode.
    if found.environment_index is None:
        return
    yield (
        f"in environment {found.environment_index} with seed {found.seed}, episode "
        f"{found.episode}, after call {found.call} of step"
    )
    yield f"to replay: reset(seed={found.episode_seed}), then the actions of this episode:"
    calls = [
        " ".join(f"{agent}: {action}" for agent, action in call.items()) for call in found.actions
    ]
    yield ", ".join(calls) or "none"


app.command("list", help=paragraphs(list_environments))(list_environments)
app.command("check", help=paragraphs(check))(check)
