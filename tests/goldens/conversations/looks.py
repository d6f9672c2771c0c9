"""What users see of a run: every view of `arena league`, and what `arena verify` finds."""

from __future__ import annotations

import contextlib
import csv
import difflib
import importlib
import io
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.goldens.decisions import differences
from tests.support import flip

# The module has this name once it is installed.
MAIN = importlib.import_module("populations.commands.main")

VIEWS = (
    *("standings", "ratings", "payoff", "mixture", "cross-play", "calibration", "lineage"),
    *("hyperparameters", "metrics", "matches", "openings", "games", "checkpoints", "events"),
    *("status", "learners", "champion"),
)
LOGS = ("metrics", "matches", "openings", "games", "checkpoints", "events")
"""Views that only grow: seen at the end."""

QUICK = ("standings", "payoff", "events", "status")

_NUMBER = re.compile(r"-?\d+(\.\d+(e-?\d+)?|e-?\d+)")


def command(arguments: Sequence[str], *, width: int = 80) -> tuple[int, str, str]:
    """Exit code of `arena`, its output, and its errors."""
    output, errors = io.StringIO(), io.StringIO()
    before = {name: os.environ.get(name) for name in ("COLUMNS", "TZ")}
    os.environ.update(COLUMNS=str(width), TZ="UTC")
    code: object = None
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            try:
                MAIN.main(arguments)
            except SystemExit as ended:
                code = ended.code
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    return int(str(code or 0)), output.getvalue(), errors.getvalue()


def look(
    run: Path, names: Sequence[str], why: Sequence[str], *, forms: Sequence[str]
) -> dict[str, str]:
    """The content of each form (``json``, ``csv``, ``80``, ``140``) of some views, by form."""
    found = {}
    views = [*((name,) for name in names), *(("why", player) for player in why)]
    # The commands run in the parent directory, so that names contain no path of this machine.
    with contextlib.chdir(run.parent):
        for form in forms:
            options = [f"--{form}"] if form in ("json", "csv") else []
            width = int(form) if form.isdigit() else 80
            texts = {}
            for view in views:
                code, *said = command(["league", run.name, *view, *options], width=width)
                name, text = " ".join(view), "".join(said)
                if code and form == "json":
                    text = json.dumps({"exit_code": code, "error": text})
                texts[name] = f"exit code {code}\n{text}" if code and form != "json" else text
            found[form] = _joined(texts, is_json=form == "json")
    return {form: _without_noise(text) for form, text in found.items()}


def _without_noise(text: str) -> str:
    """Keep ten digits of a digest, and nine of a number: the others are the machine's."""
    # Differences of equal numbers are written as 0. A digest has neither sign nor point.
    text = re.sub(r"-?\b\d+\.\d+e-(1[3-9]|[2-9]\d)\b", "0.0", text)
    text = re.sub(r"\b([0-9a-f]{10})[0-9a-f]{54}\b", r"\1", text)
    return re.sub(r"\b\d+\.\d{7,}(e-?\d+)?\b", lambda found: f"{float(found[0]):.9g}", text)


def _joined(texts: Mapping[str, str], *, is_json: bool) -> str:
    if is_json:
        # Each row is a line of its own, so that a diff of the file names the row.
        return dump({name: json.loads(text) for name, text in texts.items()})
    return "".join(f"==== {name}\n{text}" for name, text in texts.items())


def dump(value: Any, depth: int = 0) -> str:
    """JSON with a line for each document that is not large."""
    flat = json.dumps(value, ensure_ascii=False)
    if len(flat) <= 1000 or not isinstance(value, dict | list):
        return flat if depth else flat + "\n"
    if isinstance(value, dict):
        parts = [f"{json.dumps(name)}: {dump(one, depth + 1)}" for name, one in value.items()]
        text = "{\n" + ",\n".join(parts) + "\n}"
    else:
        text = "[\n" + ",\n".join(dump(one, depth + 1) for one in value) + "\n]"
    return text if depth else text + "\n"


def _newest(run: Path, pattern: str) -> Path:
    return sorted(run.glob(pattern))[-1]


def _forge(path: Path) -> None:
    text = path.read_text(encoding="utf8")
    path.unlink()
    path.write_text(text.replace('"agent_steps": ', '"agent_steps": 1'), encoding="utf8")


CHECKPOINTS, GHOSTS = "populations/*/*/checkpoints/0*", "populations/*/*/ghosts/0*"

DAMAGES: dict[str, Callable[[Path], object]] = {
    "nothing": lambda run: None,
    "a bit of a checkpoint's weights": lambda run: flip(
        _newest(run, f"{CHECKPOINTS}/weights.safetensors")
    ),
    "a bit of its optimizer": lambda run: flip(
        _newest(run, f"{CHECKPOINTS}/optimizer.safetensors")
    ),
    "a forged manifest": lambda run: _forge(_newest(run, f"{CHECKPOINTS}/manifest.json")),
    "a checkpoint that is gone": lambda run: shutil.rmtree(_newest(run, CHECKPOINTS)),
    "a ghost that is gone": lambda run: shutil.rmtree(_newest(run, GHOSTS)),
    "a bit of a ghost": lambda run: flip(_newest(run, f"{GHOSTS}/weights.safetensors")),
    "a checkpoint that nobody recorded": lambda run: shutil.copytree(
        _newest(run, CHECKPOINTS), _newest(run, CHECKPOINTS).parent / "000009000000-0123abcd"
    ),
    "a temporary directory": lambda run: (
        _newest(run, CHECKPOINTS).parent / f".tmp-{'0' * 32}"
    ).mkdir(),
    "no run.yaml": lambda run: (run / "run.yaml").unlink(),
    "no journal": lambda run: (run / "journal.db").unlink(),
    "a journal that is none": lambda run: (run / "journal.db").write_text("no journal" * 99),
}


def findings(run: Path) -> str:
    """What `arena verify` says of copies of a run of which each has one damage."""
    found = {}
    for name, damage in DAMAGES.items():
        # The copy keeps its name, because some findings name the directory.
        copy = run.parent / "damaged" / run.name
        shutil.copytree(run, copy)
        damage(copy)
        with contextlib.chdir(copy.parent):
            code, output, _ = command(["verify", run.name, "--json"])
        report = json.loads(output.replace(str(copy), "RUN"))
        found[name] = {"exit_code": code, "faults": report["faults"], "notes": report["notes"]}
        shutil.rmtree(copy)
    return dump(found)


def compare(name: str, stored: str, found: str) -> Iterator[str]:
    """Say how two contents of a form differ; nothing if they do not."""
    if name.endswith(".json"):
        yield from differences(json.loads(stored), json.loads(found))
    elif name.endswith(".csv"):
        yield from differences(_cells(stored), _cells(found))
    else:
        lines = stored.splitlines(), found.splitlines()
        yield from difflib.unified_diff(*lines, "stored", "found", lineterm="", n=1)


def _cells(text: str) -> dict[str, list[list[Any]]]:
    """The rows of each view; numbers that are not whole as numbers."""
    found: dict[str, list[list[Any]]] = {}
    for row in csv.reader(io.StringIO(text)):
        if row and row[0].startswith("===="):
            found[row[0]] = rows = []
        else:
            rows.append([float(cell) if _NUMBER.fullmatch(cell) else cell for cell in row])
    return found
