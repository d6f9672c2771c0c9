"""What users read before anything runs: help, refusals of wrong input, and signatures.

    python -m tests.goldens.front_door            # compare with what is stored
    python -m tests.goldens.front_door --make     # store what is said now

`help.txt` has ``--help`` of each command at 80 columns, `refusals.txt` the answer to each wrong
configuration and command line with its exit code, `signatures.txt` the public Python API.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import sys
import tempfile
import typing
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import yaml
from msgspec import Struct
from typer.main import get_command

from arena.config import Model
from arena.errors import ConfigError
from docs.generate.python_api import PROTOCOLS, public_names
from populations.config.run_config import RunConfig, load_config
from populations.simulation.environment import simulated_config, simulated_run
from tests.goldens.store import main

# The module has this name once it is installed: types refer to the same modules as `tools`.
MAIN = importlib.import_module("populations.commands.main")

HERE = Path(__file__).parent
STORED = HERE / "front_door"
PRESET = "connect_four"
PROPERTIES = (property, cached_property)
NONSENSE = "{nonsense: 1}"
"""Value that no key takes."""


def help_text() -> str:
    """Return the help of each command."""
    parts = [_ran(["--help"]), *(_ran([*name.split(), "--help"]) for name in _commands())]
    return "\n".join(parts)


def _commands() -> list[str]:
    root = get_command(MAIN.app)
    found: list[str] = []
    for name, command in sorted(getattr(root, "commands", {}).items()):
        below = getattr(command, "commands", {})
        found += [f"{name} {sub}" for sub in sorted(below)] if below else [name]
    return found


def _ran(arguments: Sequence[str]) -> str:
    """Run a command in this process; return its exit code and what it has written."""
    out, code = io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            MAIN.main(list(arguments))
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
    lines = "\n".join(line.rstrip() for line in out.getvalue().strip().splitlines())
    return f"$ arena {' '.join(arguments)}\n{lines}\nexit code {code}\n"


def refusals() -> str:
    """Return the answers to wrong configurations and command lines."""
    document = yaml.safe_load((HERE / "refused.yaml").read_text(encoding="utf8"))
    wrong = [[f"{key}={NONSENSE}"] for key in leaves()] + document["configurations"]
    parts = [_refusal(overrides) for overrides in wrong]
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
        ran = [_ran(arguments.split()) for arguments in document["commands"]]
        parts += [text.replace(scratch, "DIRECTORY") for text in ran]
    return "\n".join(parts)


def _refusal(overrides: Sequence[str]) -> str:
    try:
        simulated_run(simulated_config(load_config(PRESET, list(overrides))))
        said = "taken"
    except ConfigError as error:
        said = str(error)
    return f"{' '.join(overrides)}\n  {said}\n"


def leaves(
    model: type[Model] = RunConfig, path: tuple[str, ...] = (), *, population: str = "player"
) -> Iterator[str]:
    """Yield every key of the configuration, with this name for a population."""
    for name, entry in model.model_fields.items():
        key = (*path, entry.alias or name)
        sections = list(_sections(entry.annotation))
        for section in sections:
            below = (*key, population) if key == ("populations",) else key
            yield from leaves(section, below, population=population)
        if not sections:
            yield ".".join(key)


def _sections(annotation: object) -> Iterator[type[Model]]:
    if isinstance(annotation, type) and issubclass(annotation, Model):
        yield annotation
    for part in typing.get_args(annotation):
        yield from _sections(part)


def signatures() -> str:
    """Return the signatures of the public modules, a name and a line each."""
    lines: list[str] = []
    for module in ("arena", "arena.testing", *PROTOCOLS):
        found = importlib.import_module(module)
        own = [n for n, v in vars(found).items() if getattr(v, "__module__", None) == module]
        for name in sorted(public_names(module) or [n for n in own if not n.startswith("_")]):
            lines += _signature(f"{module}.{name}", getattr(found, name))
    return "\n".join(lines) + "\n"


def _signature(name: str, value: object) -> Iterator[str]:
    if inspect.isclass(value):
        bases = ", ".join(base.__name__ for base in value.__bases__)
        yield f"class {name}({bases}){_parameters(value)}"
        for own, member in sorted(vars(value).items()):
            if not own.startswith("_") and (callable(member) or isinstance(member, PROPERTIES)):
                shown = _parameters(member) if callable(member) else ""
                yield f"  {own}{shown}"
    elif callable(value):
        yield f"{name}{_parameters(value)}"
    else:
        yield f"{name}: {type(value).__name__}"


def _parameters(value: object) -> str:
    try:
        found = inspect.signature(typing.cast("Callable[..., object]", value))
    except (TypeError, ValueError):
        return ""
    if inspect.isclass(value) and issubclass(value, Struct):
        # The annotations are read as written, because a Struct resolves them with all of their
        # bounds.
        written = ChainMap(*(vars(one).get("__annotations__", {}) for one in value.__mro__))
        found = found.replace(
            parameters=[
                one.replace(annotation=written[name]) for name, one in found.parameters.items()
            ]
        )
    return str(found)


MAKERS: Mapping[str, Callable[[], str]] = {
    "help.txt": help_text,
    "refusals.txt": refusals,
    "signatures.txt": signatures,
}


if __name__ == "__main__":
    main(__doc__, STORED, MAKERS, sys.argv[1:])
