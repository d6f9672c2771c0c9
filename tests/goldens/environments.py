"""What `arena envs check` finds in each environment, sound or broken.

    python -m tests.goldens.environments            # compare with what is stored
    python -m tests.goldens.environments --make     # store what is found now

Sound environments are those of the Makefile and of `tests/environments/rows.py`, broken ones those
of `environments.yaml`. Time moves by steps of the environment, so nothing depends on the machine.
What is not installed is not compared, and stays as it was stored.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from fnmatch import fnmatch
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import yaml

from tests.environments.rows import rows
from tests.goldens.conversations.looks import command, dump
from tests.goldens.forms import Document, plain
from tests.goldens.store import main, read
from tests.goldens.today import counted_time

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
ASSETS = ROOT / "tests" / "assets"
STORED = HERE / "environments"
FINDINGS, TEXTS = "findings.json.xz", "findings.txt.xz"

SHORT = ("--seconds", "0.1", "--time-limit", "600")
OF_THE_MACHINE = ("env_steps_per_s", "agent_steps_per_s")
OF_ITS_NUMBERS = ("entropy", "score", "mean_return", "results", "agent_steps_per_s")
"""What a trial has learned hangs on the last digits of a machine's numbers."""

MOST_PROCESSES = 4

Case = tuple[str, ...]


@cache
def setting() -> Document:
    """Read which environments are broken, and of which the text is stored."""
    document: Document = yaml.safe_load((HERE / "environments.yaml").read_text(encoding="utf8"))
    return document


def cases() -> Iterator[tuple[Case, Sequence[str]]]:
    """Yield the arguments of each check, and the modules that it needs."""
    for name in supported():
        yield (name, "--train", str(setting()["train"])), ()
    for row in rows():
        # The check is about the environment itself, independent of the backend of a run.
        keys = {"kwargs": row.kwargs, **row.environment, "backend": None}
        given = [f"environment.{key}={json.dumps(value)}" for key, value in keys.items() if value]
        if not any(fnmatch(row.name, name) for name in setting()["left_out"]) or (
            row.name in setting()["but"]
        ):
            yield (row.id, *given, "--train", "0"), row.needs
    for name, arguments in _broken():
        yield (name, *arguments, "--train", "0"), ()


def supported() -> list[str]:
    """Return the environments that ``make test-envs`` checks."""
    text = (ROOT / "Makefile").read_text(encoding="utf8").replace("\\\n", " ")
    (found,) = re.findall(r"^ENVIRONMENTS := (.*)$", text, flags=re.MULTILINE)
    return str(found).split()


def _broken() -> Iterator[tuple[str, list[str]]]:
    for name, variants in setting()["broken"].items():
        for kwargs in variants:
            yield name, [f"environment.kwargs={json.dumps(kwargs)}"] if kwargs else []


def findings() -> str:
    """Return the documents of all checks that can be made here."""
    stored = json.loads(read(STORED / FINDINGS) or "{}")
    known = dict(cases())
    missing = [case for case, needs in known.items() if not all(map(find_spec, needs))]
    if missing:
        ids = ", ".join(dict.fromkeys(case[0] for case in missing))
        sys.stdout.write(f"not installed, not compared: {ids}\n")
    here = [case for case in known if case not in missing]
    with ProcessPoolExecutor(min(MOST_PROCESSES, os.cpu_count() or 1)) as pool:
        found = dict(zip(here, pool.map(checked, here, chunksize=4), strict=True))
    names = {case: " ".join(case) for case in known}
    found |= {case: stored[names[case]] for case in missing if names[case] in stored}
    return dump({names[case]: found[case] for case in known if case in found})


def checked(case: Case) -> Document:
    """Check an environment; its exit code, document, and the configuration that is written."""
    with tempfile.TemporaryDirectory() as scratch, counted_time():
        file = Path(scratch) / "suggested.yaml"
        code, *said = _ran(case, "--json", "--write", str(file))
        output, errors = (text.replace(scratch, "SCRATCH") for text in said)
        written = file.read_text(encoding="utf8") if file.exists() else ""
    found: Document = {"exit_code": code}
    if output:
        # Earlier lines are printed by the environment; the document is the last line.
        found["document"] = _without_noise(json.loads(output.splitlines()[-1]))
    else:
        found["error"] = errors.splitlines()[-8:]
    if written and (lines := written.splitlines()) != found.get("document", {}).get("preset"):
        found["written"] = lines
    return {key: plain(value) for key, value in found.items()}


def _without_noise(document: Document) -> Document:
    for key in OF_THE_MACHINE:
        document.pop(key, None)
    for key in OF_ITS_NUMBERS if document.get("trial") else ():
        document["trial"].pop(key)
    if document["preset"] is not None:
        # The preset is split into lines, so that a difference names its line.
        document["preset"] = document["preset"].splitlines()
    return document


def texts() -> str:
    """Return what people read of some environments."""
    parts = []
    with counted_time():
        for case in [*((name, "--train", "0") for name in supported()), *map(tuple, _shown())]:
            code, output, errors = _ran(case)
            parts.append(f"==== {' '.join(case)}\n{output}{errors}exit code {code}\n")
    return "".join(parts)


def _shown() -> Iterator[Sequence[str]]:
    for name in setting()["shown"]:
        yield from ((one, *keys, "--train", "0") for one, keys in _broken() if one == name)


def _ran(case: Case, *options: str) -> tuple[int, str, str]:
    # The check runs in the directory of the environments' modules.
    with contextlib.chdir(ASSETS):
        code, *said = command(["envs", "check", *case, *SHORT, *options])
    output, errors = (text.replace(str(ROOT), "ROOT") for text in said)
    return code, _without_lines(output), _without_lines(errors)


def _without_lines(text: str) -> str:
    # Line numbers are masked, because they change with edits of this file.
    return re.sub(r"(?<=, line )\d+", "N", text)


MAKERS: Mapping[str, Callable[[], str]] = {FINDINGS: findings, TEXTS: texts}


if __name__ == "__main__":
    main(__doc__, STORED, MAKERS, sys.argv[1:])
