"""The page of the commands, from typer."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import typer

from docs.generate.markdown import code


def commands() -> dict[str, Any]:
    """Return each command and group, by the words that start it."""
    # `import_module` takes the installed name: importing `tools` would load the package a second
    # time.
    app = import_module("populations.commands.main").app
    return dict(_walk(typer.main.get_command(app), "arena"))


def _walk(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _walk(inner, f"{path} {name}")


def page() -> str:
    """Return a section for each command, with every argument and option."""
    return "\n".join(_section(path, command) for path, command in commands().items())


def _section(path: str, command: Any) -> str:
    arguments = [usage(one) for one in command.params if one.param_type_name == "argument"]
    is_group = hasattr(command, "commands")
    line = " ".join([path, "[OPTIONS]", *arguments, *(["COMMAND [ARGS]..."] if is_group else [])])
    parts = [
        f"## {path}",
        _escaped(command.help or ""),
        f"```text\n{line}\n```",
        f"```{{program}} {path}\n```",
        *(_entry(one) for one in command.params if one.name != "help"),
    ]
    return "\n\n".join(parts) + "\n"


def _entry(parameter: Any) -> str:
    text = _escaped(parameter.help or "")
    text += "" if text.endswith((".", "?")) else "."
    if default := _default(parameter):
        text += f" Default: {code(default)}."
    return f"```{{option}} {label(parameter)}\n{text}\n```"


def usage(argument: Any) -> str:
    """Return an argument as a line of usage has it: in brackets if it may be left out."""
    text = _metavar(argument)
    text = text if argument.required else f"[{text}]"
    return f"{text}..." if argument.nargs == -1 and not text.endswith("...") else text


def label(parameter: Any) -> str:
    """Return an argument or option as a command line has it."""
    if parameter.param_type_name == "argument":
        return _metavar(parameter)
    names = (*parameter.opts, *parameter.secondary_opts)
    words = names if parameter.is_flag else [f"{name} {_metavar(parameter)}" for name in names]
    return ", ".join(words)


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _default(parameter: Any) -> str:
    value = parameter.default
    is_hidden = parameter.required or parameter.show_default is False or callable(value)
    return "" if is_hidden or value in (None, False, (), "") else str(value)


def _escaped(text: str) -> str:
    """Return a help text as Markdown: no marks in it."""
    return text.replace("<", "\\<").replace("*", "\\*")
