"""`arena envs list` and `arena envs check`: which environments there are, and whether one works."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ._output import console, print_json

if TYPE_CHECKING:
    from arena.envs.check import EnvironmentReport

app = typer.Typer(help="Which environments are there; does this one work.", no_args_is_help=True)

PROBLEMS_EXIT_CODE = 3


@app.command("list")
def list_environments(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Show the environments that have an id, and what installs those that are missing."""
    from arena.envs.registry import known_environments

    known = known_environments()
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
                    }
                    for environment in known
                ]
            }
        )
        return
    from rich.table import Table

    table = Table("id", "api", "installed", box=None)
    for environment in known:
        there = "yes" if environment.installed else environment.install.replace("[", r"\[")
        table.add_row(environment.id, environment.apis[0], there)
    console().print(table)
    console().print(
        "Any other: package.module:factory, which makes a pettingzoo.AECEnv or ParallelEnv."
    )


@app.command("check")
def check(
    environment: Annotated[
        str, typer.Argument(metavar="ID", help="A registry id, or package.module:factory.")
    ],
    seconds: Annotated[float, typer.Option(min=0.1, help="How long to measure speed.")] = 2.0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Play random episodes in an environment and say what does not work, and how fast it is."""
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
    for problem in report.problems:
        out.print(f"  problem: {problem}", markup=False)
    for note in report.notes:
        out.print(f"  note: {note}", markup=False)


def _space(space: object) -> str:
    assert isinstance(space, dict)
    if space["kind"] == "Discrete":
        return f"Discrete({space['n']})"
    return f"Box({'x'.join(map(str, space['shape']))}, {space['dtype']})"
