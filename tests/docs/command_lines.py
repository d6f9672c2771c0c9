"""Command lines, judged by what the real commands take."""

from __future__ import annotations

import re
import shlex

from arena.errors import ConfigError
from docs.generate.commands import commands as known_commands
from populations.config.run_config import load_config

KNOWN = known_commands()


def problem_of(command: str, *, is_complete: bool = True) -> str:
    """Return what the real commands would refuse; empty: nothing.

    Args:
        command: Line of a shell.
        is_complete: Whether it has its arguments and values, too.
    """
    # Comments and redirections of the output are not part of the command.
    words = shlex.split(command.split(" | ")[0].split(" > ")[0], comments=True)
    while words and ("=" in words[0] or not words[0].endswith("arena")):
        words = words[1:]
    path, found = "arena", KNOWN["arena"]
    rest = words[1:]
    while rest and f"{path} {rest[0]}" in KNOWN:
        path = f"{path} {rest.pop(0)}"
        found = KNOWN[path]
    if rest and hasattr(found, "commands") and not rest[0].startswith("-"):
        return f"there is no command {path} {rest[0]}"
    options = {name: one for one in found.params for name in (*one.opts, *one.secondary_opts)}
    options = {name: one for name, one in options.items() if name.startswith("-")}
    arguments, ready = [], iter(rest)
    for word in ready:
        name, has_value, _ = word.partition("=")
        if not word.startswith("--"):
            arguments.append(word)
        elif name not in options and name != "--help":
            return f"{path} has no option {name}"
        elif name in options and not (options[name].is_flag or has_value or next(ready, "")):
            if not is_complete:
                continue
            return f"{path} {name} needs a value"
    required = [one for one in found.params if one.param_type_name == "argument" and one.required]
    is_shown = not is_complete or any(word in ("...", "--help") for word in rest)
    if len(arguments) < len(required) and not is_shown and not hasattr(found, "commands"):
        return f"{path} needs {len(required)} arguments, got {arguments}"
    return key_problem(path, arguments)


def key_problem(path: str, arguments: list[str]) -> str:
    """Return what is wrong with the KEY=VALUE of a launch."""
    keys = [word for word in arguments if re.match(r"[a-z_]+(\.[A-Za-z_]+)*=", word)]
    if path != "arena launch" or not keys or any("..." in key for key in keys):
        return ""
    source = arguments[0] if arguments[0] not in keys else "tictactoe"
    try:
        load_config(source if re.fullmatch(r"[a-z_]+", source) else "tictactoe", keys)
    except ConfigError as error:
        return str(error)
    return ""
