"""`arena bench`: how fast each stage is on this machine, as ratios to stated bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..terminal.options import AsJson, Code, Overrides
from ..terminal.output import console, log_console, print_json, tell

if TYPE_CHECKING:
    from .guard import Table
    from .measure import Effort, Measurement, Stage
    from .stages import Stages
    from .whole_run import WholeRuns

STAGES = ("environment", "inference", "update", "learner")
RUNS = ("run", "orchestration", "policies", "cores")
FELL_EXIT_CODE = 3

Say = Callable[[str], None]


Only = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help=f"Measurement, repeatable: {', '.join((*STAGES, *RUNS))}."),
]
Against = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Stored table for --guard. Default: the packaged one."),
]


def bench(
    overrides: Overrides = None,
    config: Annotated[
        str | None,
        typer.Option(help="Preset's name or YAML file. Default: Connect Four, 128x128."),
    ] = None,
    whole_run: Annotated[
        bool, typer.Option("--whole-run", help="Measure whole runs too: a quarter of an hour.")
    ] = False,
    only: Only = None,
    seconds: Annotated[
        float, typer.Option(min=0.01, help="Seconds to run each side of a comparison, per round.")
    ] = 0.5,
    run_seconds: Annotated[
        float, typer.Option(min=0.1, help="Seconds of each whole run, start-up apart.")
    ] = 20.0,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds per measurement.")] = 5,
    learners: Annotated[
        int | None, typer.Option(min=1, help="Number of learner processes. Default: cores.")
    ] = None,
    policies: Annotated[
        int | None, typer.Option(min=1, help="Size of each population in whole runs.")
    ] = None,
    precision: Annotated[
        str | None, typer.Option(metavar="auto|float32|bfloat16", help="Precision of training.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File to store the table in, for --against.")
    ] = None,
    guard: Annotated[
        bool, typer.Option("--guard", help="Exit 3 if a ratio fell below the stored one.")
    ] = False,
    against: Against = None,
    code: Code = None,
    as_json: AsJson = False,
) -> None:
    """Measure this machine: each stage and whole runs, as ratios to their bounds."""
    from .guard import load_table, save_table
    from .measure import Effort

    # Names and files are checked before the measurement, which takes minutes.
    names = _names(only or (), whole_run=whole_run)
    # The stored table is read before --save may replace it.
    stored = load_table(against) if guard or against is not None else None
    changes = [*(overrides or ()), *([] if precision is None else [f"precision={precision}"])]
    with _progress() as say:
        table = _measure(
            names,
            config=config,
            overrides=changes,
            policies=policies,
            learners=learners,
            effort=Effort(rounds=rounds, seconds=seconds, run_seconds=run_seconds),
            say=say,
        )
    # The table is saved before the guard, which may end the command.
    if save is not None:
        save_table(table, save)
    _show(table, stored=stored, as_json=as_json)


def _show(table: Table, *, stored: Table | None, as_json: bool) -> None:
    """Print a table, and what fell below the stored one, if there is one."""
    from arena.codec import plain

    from .guard import falls, noise_of

    fallen = None if stored is None else falls(stored, table)
    if as_json:
        document = plain(table)
        if fallen is not None:
            # Without a comparison there is no key; an empty list means that no measurement fell.
            document["fell"] = [
                {
                    "name": now.name,
                    "before": before.ratio,
                    "now": now.ratio,
                    "fall": before.ratio - now.ratio,
                    "noise": noise_of(before, now),
                }
                for before, now in fallen
            ]
        print_json(document)
    else:
        _print_table(table)
    if stored is not None and fallen is not None:
        _report(fallen, stored=stored, now=table)


def _names(only: Sequence[str], *, whole_run: bool) -> list[str]:
    """Return the names of what to measure, in the order of measuring.

    Raises:
        ConfigError: If there is no such measurement.
    """
    from arena.errors import ConfigError

    known = (*STAGES, *RUNS)
    for name in only:
        if name not in known:
            raise ConfigError(f"--only {name}: must be one of {', '.join(known)}")
    wanted = only or (known if whole_run else STAGES)
    # The order is the program's: stages come before whole runs.
    return [name for name in known if name in wanted]


def _measure(
    names: Sequence[str],
    *,
    config: str | None,
    overrides: Sequence[str],
    policies: int | None,
    learners: int | None,
    effort: Effort,
    say: Say,
) -> Table:
    import tempfile
    from contextlib import closing

    from .guard import Table
    from .measure import compare
    from .stages import Stages, one_thread
    from .subject import load_subject, machine_facts
    from .whole_run import WholeRuns, number_of_learners

    say("the environment's facts")
    subject = load_subject(config, overrides, policies=policies)
    # Only whole runs need learners: not every configuration has a fixed number of them.
    num_learners = number_of_learners(subject, learners) if set(names) & set(RUNS) else 1
    found: list[Measurement] = []

    def measure(owner: Stages | WholeRuns, known: Sequence[str]) -> None:
        for name in names:
            if name in known:
                say(name)
                # A measurement has the name of its method; each stage is made just before it is
                # measured.
                stages: Iterator[Stage] = getattr(owner, name)()
                found.extend(compare(stage, rounds=effort.rounds) for stage in stages)

    stages = Stages(subject, effort=effort)
    # Environments are closed before whole runs, which need the memory and the cores.
    with one_thread(), closing(stages):
        measure(stages, STAGES)
    with tempfile.TemporaryDirectory(prefix="arena-bench-") as directory:
        runs = WholeRuns(
            subject,
            effort=effort,
            num_learners=num_learners,
            directory=Path(directory),
            say=say,
        )
        measure(runs, RUNS)
    return Table(
        machine=machine_facts(subject.device),
        settings=subject.settings,
        measurements=tuple(found),
        stages=stages.shares,
    )


@contextmanager
def _progress() -> Iterator[Say]:
    """Show the current measurement on standard error: a status line, or one line each."""
    screen = log_console()
    if not screen.is_terminal:
        yield lambda text: tell(f"bench: {text}")
        return
    with screen.status("") as status:
        yield lambda text: status.update(f"measuring {text}")


def _print_table(table: Table) -> None:
    from populations.views.parts import Column
    from populations.views.parts import Table as Rows

    from ..show.text import print_framed

    screen = console()
    machine, settings = table.machine, table.settings
    screen.print(
        f"{machine['cpu']}, {machine['cores']} cores, torch {machine['torch']}, "
        f"bfloat16 {'yes' if machine['bfloat16'] else 'no'}"
    )
    screen.print(", ".join(f"{key} {value}" for key, value in settings.items()), style="dim")
    keys = ("what", "value", "bound", "bound's value", "ratio", "lowest-highest")
    lines = (
        (
            *(one.name, _value(one.value, unit=one.unit)),
            *(one.bound_name, _value(one.bound_value, unit=one.unit)),
            *(f"{one.ratio:.2f}", f"{one.ratio_low:.2f}-{one.ratio_high:.2f}"),
        )
        for one in table.measurements
    )
    rows = [dict(zip(keys, line, strict=True)) for line in lines]
    print_framed(Rows([Column(key, "word") for key in keys], rows), box=None, overflow="ellipsis")
    for name, shares in table.stages.items():
        text = ", ".join(f"{stage} {share:.0%}" for stage, share in shares.items())
        screen.print(f"{name}: {text}")


def _value(value: float, *, unit: str) -> str:
    return f"{value:,.2f} {unit}" if value < 100.0 else f"{value:,.0f} {unit}"


def _report(
    fallen: Sequence[tuple[Measurement, Measurement]], *, stored: Table, now: Table
) -> None:
    """Say what fell, on standard error.

    Raises:
        typer.Exit: If anything did.
    """
    from .guard import noise_of

    cpus = stored.machine.get("cpu"), now.machine.get("cpu")
    if cpus[0] != cpus[1]:
        tell(f"note: the stored table is from another processor: {cpus[0]}, this is {cpus[1]}")
    for before, found in fallen:
        tell(
            f"{found.name} fell: {found.ratio:.3f} of its bound ({found.bound_name}), was "
            f"{before.ratio:.3f}; noise {noise_of(before, found):.3f}"
        )
    if fallen:
        raise typer.Exit(FELL_EXIT_CODE)
    tell("no ratio fell by more than its noise")
