"""Arguments, documents, JSON lines that are gone on with, and tables: parts that programs share."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any


def parser_of(text: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help is a module's own docstring, as it stands."""
    return argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def say(line: str | Mapping[str, object]) -> None:
    """Write a line to standard output at once, plain data as JSON."""
    sys.stdout.write(f"{line if isinstance(line, str) else json.dumps(line)}\n")
    sys.stdout.flush()


def say_document(document: Mapping[str, object], *, as_json: bool) -> None:
    """Write a document, as JSON or with a line for each figure, nested names joined by dots."""
    say(document if as_json else "\n".join(f"{name}: {value}" for name, value in flat(document)))


def flat(document: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield the figures of a document with their names."""
    for name, value in document.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def in_process(module: str, *arguments: str | Path) -> dict[str, Any]:
    """Run an experiment in a process of its own, with one thread, and return what it prints."""
    command = [sys.executable, "-m", f"experiments.{module}", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return dict(json.loads(done.stdout))


def read_results(out: Path | None) -> Iterator[dict[str, Any]]:
    """Yield the results that a file has; none where there is no file."""
    is_there = out is not None and out.is_file()
    for line in out.read_text(encoding="utf8").split("\n") if out and is_there else ():
        # A line that a kill cut short is skipped, so its result is measured again.
        with contextlib.suppress(ValueError):
            yield json.loads(line)


def add_result(out: Path | None, result: Mapping[str, object]) -> None:
    """Append a result to a file, so that it is not measured again; without a file do nothing."""
    if out is None:
        return
    line = json.dumps(result).encode() + b"\n"
    with out.open("a+b") as file:
        file.seek(max(file.tell() - 1, 0))
        # A newline comes first where a kill cut the last line short.
        is_cut = file.read() not in (b"", b"\n")
        file.write(b"\n" + line if is_cut else line)


def markdown(rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield the lines of a table in Markdown as its rows come; the first one is its head."""
    for number, row in enumerate(rows):
        yield f"| {' | '.join(map(str, row))} |"
        if number == 0:
            yield "|---" * len(row) + "|"


def columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table whose columns are as wide as their widest cells."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()
