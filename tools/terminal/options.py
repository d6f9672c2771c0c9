"""Options and arguments that several commands have.

Tests: `tests/tools/test_main.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand


def optional(metavar: str | None, text: str, *names: str, least: int | None = None) -> object:
    """Return an option that has no value where it is left out.

    Args:
        metavar: Word for its value. None: that of its type.
        text: Help.
        names: Its names; without any the argument's.
        least: Least value of a number.
    """
    return typer.Option(*names, metavar=metavar, help=text, show_default=False, min=least)


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


# The callback runs when a command begins; imports of user code use its directory (`arena.resolve`).
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


class TakesKeys(TyperCommand):
    """A command with ``KEY=VALUE`` arguments."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  (see below)
        """Parse as typer does; name the key where an unknown option is one.

        Raises:
            ConfigError: If so.
        """
        written = list(args)
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            # Some releases of typer have their own copy of click's classes, so the class is known
            # by name.
            option = getattr(error, "option_name", "")
            is_unknown = type(error).__name__ == "NoSuchOption"
            hint = _as_override(option, written) if is_unknown else None
            if hint is None:
                raise
            from arena.errors import ConfigError

            raise ConfigError(f"there is no option {option}: keys are KEY=VALUE, {hint}") from error


def _as_override(option: str, arguments: Sequence[str]) -> str | None:
    """Return an option as KEY=VALUE; None where no key has its name."""
    from populations.config.run_config import RunConfig
    from populations.config.validation import hyperparameter_path, known_paths

    name = option.lstrip("-").replace("-", "_")
    paths = [p for p in known_paths(RunConfig) if p == tuple(name.split(".")) or p[-1] == name]
    if place := hyperparameter_path(name):
        paths.append(place)
    if not paths:
        return None
    # Of several keys with one name the shortest path is most likely meant.
    path = min(paths, key=len)
    key = ".".join("<name>" if part == "*" else part for part in path)
    return f"{key}={_value(option, arguments)}"


def _value(option: str, arguments: Sequence[str]) -> str:
    """Return the value that the option was given."""
    # The "-" stands after the last argument, which then has no following value.
    for argument, following in zip(arguments, [*arguments[1:], "-"], strict=True):
        if argument.startswith(f"{option}="):
            return argument.partition("=")[2]
        if argument == option and not following.startswith("-"):
            return following
    return "VALUE"
