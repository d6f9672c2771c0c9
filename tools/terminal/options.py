"""Options and arguments that several commands have.

Tests: `tests/tools/test_help.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Configuration = Annotated[
    str, typer.Argument(metavar="CONFIG", help="Name of a preset (connect_four), or a YAML file.")
]
OptionalConfiguration = Annotated[
    str | None,
    typer.Argument(metavar="CONFIG", help="Name of a preset (connect_four), or a YAML file."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="Keys of the configuration to override."),
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Import the code that a run.yaml or card from elsewhere names: it runs as you.",
    ),
]


def _use_code(directory: Path | None) -> Path | None:
    from arena.resolve import use_code

    use_code(directory)
    return directory


# It is in force when a command begins: what imports modules asks for it (`arena.resolve`).
Code = Annotated[
    Path | None,
    typer.Option(
        "--code",
        callback=_use_code,
        metavar="DIR",
        help="Directory of your modules. Default: the current one, of a run that of its launch.",
        show_default=False,
    ),
]
RunDirectory = Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")]
OnlyPopulation = Annotated[
    str | None,
    typer.Option("--population", metavar="NAME", help="Single population, by name. Default: all."),
]
