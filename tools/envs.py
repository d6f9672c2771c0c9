"""`arena envs list` and `arena envs check`: which environments there are, and whether one works."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ._output import console, log_console, print_json
from ._tables import print_table

if TYPE_CHECKING:
    from arena.envs.check import EnvironmentReport
    from arena.envs.conformance import ConformanceReport, Difference

app = typer.Typer(help="Which environments are there; does this one work.", no_args_is_help=True)

PROBLEMS_EXIT_CODE = 3
DIFFERENT_EXIT_CODE = 3


@app.command("list")
def list_environments(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Show the environments that have an id, and what installs those that are missing."""
    from arena.envs.batched.twins import TWINS
    from arena.envs.openspiel import known_games
    from arena.envs.registry import known_environments

    known = sorted(known_environments() + known_games(), key=lambda environment: environment.id)
    if as_json:
        print_json(
            {
                "environments": [
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
            }
        )
        return
    from rich.table import Table

    table = Table("id", "api", "batched", "installed", box=None)
    for environment in known:
        there = "yes" if environment.installed else environment.install.replace("[", r"\[")
        twin = "yes" if environment.id in TWINS else ""
        table.add_row(environment.id, environment.apis[0], twin, there)
    print_table(console(), table)
    console().print(
        "Any other: openspiel:game of OpenSpiel; package.module:factory, which makes a "
        "pettingzoo.AECEnv or ParallelEnv; package.module:Class of a batched game.",
        soft_wrap=True,
    )


@app.command("check")
def check(
    environment: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="A registry id, openspiel:game, or package.module:factory."
        ),
    ],
    against: Annotated[
        str | None,
        typer.Option(
            metavar="ID2", help="Play both with the same seeds and actions; compare everything."
        ),
    ] = None,
    games: Annotated[int, typer.Option(min=1, help="How many, with --against.")] = 50_000,
    num_envs: Annotated[
        int, typer.Option(min=1, max=65_536, help="Games at once, with --against.")
    ] = 256,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="How long to measure speed, without --against.")
    ] = 2.0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Play random episodes in an environment and say what does not work, and how fast it is.

    With --against: whether two environments are the same game, to the last number.
    """
    import torch

    # Batches are small: what is measured is one core, and more threads would wait for each other.
    torch.set_num_threads(1)
    if against is not None:
        _check_against(environment, against, games=games, num_envs=num_envs, as_json=as_json)
        return
    from arena.envs.check import check_environment

    report = check_environment(
        environment, kwargs={}, launch_directory=str(Path.cwd()), seconds=seconds
    )
    if as_json:
        _print_report_json(report)
    else:
        _print_report(report)
    if report.problems:
        raise typer.Exit(PROBLEMS_EXIT_CODE)


def _check_against(
    environment: str, against: str, *, games: int, num_envs: int, as_json: bool
) -> None:
    from arena.envs.conformance import check_against

    with _games_progress(f"{environment} against {against}", total=games) as progress:
        report = check_against(
            environment,
            against,
            kwargs={},
            other_kwargs={},
            launch_directory=str(Path.cwd()),
            num_games=games,
            num_envs=num_envs,
            progress=progress,
        )
    if as_json:
        _print_conformance_json(report, environment=environment, against=against)
    else:
        _print_conformance(report, environment=environment, against=against)
    if report.difference is not None:
        raise typer.Exit(DIFFERENT_EXIT_CODE)


@contextmanager
def _games_progress(what: str, *, total: int) -> Iterator[Callable[[int], None] | None]:
    """A bar on standard error if that is a terminal; it disappears at the end."""
    screen = log_console()
    if not screen.is_terminal:
        yield None
        return
    from rich.progress import Progress

    with Progress(console=screen, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda num_games: bar.update(task, completed=num_games)


def _print_conformance_json(report: ConformanceReport, *, environment: str, against: str) -> None:
    from dataclasses import asdict

    one, other = report.env_steps_per_s
    print_json(
        {
            "environment": environment,
            "against": against,
            "games": report.games,
            "decisions": report.decisions,
            "equal": report.difference is None,
            "difference": None if report.difference is None else asdict(report.difference),
            "env_steps_per_s": {"environment": one, "against": other},
        }
    )


def _print_conformance(report: ConformanceReport, *, environment: str, against: str) -> None:
    out, found = console(), report.difference
    verdict = "the same game" if found is None else "different"
    out.print(f"{environment} against {against}: {verdict}", markup=False)
    out.print(f"  {report.games:,} games, {report.decisions:,} decisions compared")
    one, other = report.env_steps_per_s
    if one and other:
        out.print(
            f"  {one:,.0f} against {other:,.0f} environment steps/s in batches, "
            f"{other / one:.1f} times as many"
        )
    if found is not None:
        for line in _difference_lines(found):
            out.print(f"  {line}", markup=False)


def _difference_lines(found: Difference) -> Iterator[str]:
    whose = "" if found.agent is None else f" of {found.agent}"
    yield f"differs: {found.what}{whose}"
    if found.also:
        yield f"there too: {', '.join(found.also)}"
    if isinstance(found.one, list) and isinstance(found.other, list) and len(found.one) > 1:
        at = found.position
        if at < min(len(found.one), len(found.other)):
            yield f"first at position {at}: {found.one[at]} against {found.other[at]}"
    yield f"one:   {found.one}"
    yield f"other: {found.other}"
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


def _print_report_json(report: EnvironmentReport) -> None:
    from dataclasses import asdict

    document = asdict(report)
    document["environment"] = document.pop("spec")
    document["works"] = not report.problems
    print_json(document)


def _print_report(report: EnvironmentReport) -> None:
    spec, out = report.spec, console()
    length = "-" if report.mean_length is None else f"{report.mean_length:.1f}"
    out.print(f"{spec.id} ({spec.api}): {'problems' if report.problems else 'works'}")
    for agent in spec.agents:
        facts = spec.agent_specs[agent]
        mask = f", mask in {facts.mask}" if facts.mask else ""
        out.print(
            f"  {agent}: sees {_space(facts.observation)}, does {_space(facts.action)}{mask}",
            markup=False,
        )
    out.print(f"  episodes {report.episodes}, mean length {length} calls of step")
    out.print(
        f"  {report.env_steps_per_s:,.0f} environment steps/s, "
        f"{report.agent_steps_per_s:,.0f} agent steps/s on one core"
    )
    out.print(f"  deterministic by seed: {'yes' if report.deterministic else 'no'}")
    if report.twin is not None:
        out.print(
            f"  native twin: {report.twin}; arena envs check {spec.id} --against {report.twin}",
            markup=False,
            soft_wrap=True,
        )
    for problem in report.problems:
        out.print(f"  problem: {problem}", markup=False)
    for note in report.notes:
        out.print(f"  note: {note}", markup=False)


def _space(space: object) -> str:
    assert isinstance(space, dict)
    if space["kind"] == "Discrete":
        return f"Discrete({space['n']})"
    return f"Box({'x'.join(map(str, space['shape']))}, {space['dtype']})"
