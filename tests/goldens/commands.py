"""Exit codes and last lines of commands, where they succeed and where they fail.

    python -m tests.goldens.commands            # compare with what is stored
    python -m tests.goldens.commands --make     # store what is said now

The commands of `commands.yaml` are called one after the other in an empty directory. Three small
runs are trained by them; what was learned is not compared.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.goldens.conversations.looks import command, dump
from tests.goldens.forms import Document
from tests.goldens.store import main
from tests.goldens.today import held

HERE = Path(__file__).parent
STORED = HERE / "commands"
ASSETS = HERE.parent / "assets"
LAST = 8
"""Lines of each output that are stored."""

_PLAYER = re.compile(r"\b(\w+/)?p\d{3}(@[\d.]+\w?|@best)?|bot:random\b")
_OF_ONE_RUN = re.compile(r"(?<=-)[0-9a-f]{8}\b|\b\d{8}T\d+Z")
"""Digests of weights, and moments."""

_NUMBER = re.compile(r"[-+]?\b\d[\d,.:]*(e[-+]?\d+)?\b")


def said() -> str:
    """Return the exit code and the last lines of each command."""
    setting: Document = yaml.safe_load((HERE / "commands.yaml").read_text(encoding="utf8"))
    found: dict[str, Any] = {}
    with _place() as place:
        for name, text in setting["files"].items():
            (place / name).write_text(text, encoding="utf8")
        for entry in setting["commands"]:
            how, line = next(iter(entry.items())) if isinstance(entry, dict) else ("", entry)
            if how == "damaged":
                (place / "run" / "journal.db").write_text("no journal" * 99)
            with held(place / "run") if how == "held" else contextlib.nullcontext():
                answer = _answer(how, line, setting, place)
            # A suffix is added if the same command occurs again.
            name = " ".join([*([how] if how else []), line])
            while name in found:
                name += " again"
            found[name] = answer
    return dump(found)


def _answer(how: str, line: str, setting: Document, place: Path) -> Document:
    arguments = [
        part
        for word in line.split()
        for part in (setting["small"].split() if word == "SMALL" else [_value(word)])
    ]
    code, *outputs = command(arguments)
    answer: Document = {"exit_code": code}
    if how == "code":
        return answer
    for name, text in zip(("output", "errors"), outputs, strict=True):
        for path, word in ((place, "HERE"), (ASSETS, "ASSETS"), (HERE.parent.parent, "ROOT")):
            text = text.replace(str(path), word)
        if name == "output" and "--json" in arguments and not code:
            answer["keys"] = keys(json.loads(text))
            continue
        lines = [line.rstrip() for line in text.splitlines() if line.strip()]
        if how != "exact":
            left_out = re.compile("|".join(setting["left_out"]))
            lines = [_words(line) for line in lines if not left_out.search(line)]
        if lines:
            answer[name] = lines[-LAST:]
    return answer


def _value(word: str) -> str:
    # A word contains no blanks, but YAML needs one after a colon.
    return word.replace("ASSETS", str(ASSETS)) if "{" not in word else word.replace(":", ": ")


def _words(line: str) -> str:
    """A line without players, digests and numbers, and with single blanks."""
    line = _NUMBER.sub("N", _OF_ONE_RUN.sub("X", _PLAYER.sub("PLAYER", line)))
    return re.sub(r"(?<=\S) +", " ", line)


def keys(document: Any) -> Any:
    """Keys of a document; of a list those of all its parts."""
    if isinstance(document, dict):
        return {_PLAYER.sub("PLAYER", name): keys(value) for name, value in document.items()}
    if isinstance(document, list):
        parts = [keys(value) for value in document]
        merged: Document = {}
        for part in parts:
            merged.update(part if isinstance(part, dict) else {})
        return [merged] if merged else []
    return ""


@contextlib.contextmanager
def _place() -> Iterator[Path]:
    """An empty directory to be in; launches are recorded in it, not at home."""
    with tempfile.TemporaryDirectory() as directory, contextlib.chdir(directory):
        os.environ["XDG_STATE_HOME"] = directory
        yield Path(directory).resolve()


MAKERS: Mapping[str, Callable[[], str]] = {"said.json": said}


if __name__ == "__main__":
    main(__doc__, STORED, MAKERS, sys.argv[1:])
