"""Files of a golden: each is made, stored, and compared with what was stored.

Files whose names end in ``.xz`` are compressed; what comes before that says how they are compared
(`compare`): JSON document by document, text line by line.
"""

from __future__ import annotations

import argparse
import lzma
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.goldens.conversations.looks import compare

Makers = Mapping[str, Callable[[], str]]

MOST_DIFFERENCES = 40


def read(path: Path) -> str:
    """Return the content of a stored file; empty if there is none."""
    if not path.exists():
        return ""
    data = path.read_bytes()
    return (lzma.decompress(data) if path.suffix == ".xz" else data).decode()


def write(path: Path, text: str) -> None:
    """Store a file, unless it has this content."""
    path.parent.mkdir(exist_ok=True)
    # An unchanged text keeps its bytes, because another library may compress it differently.
    if read(path) != text:
        path.write_bytes(lzma.compress(text.encode()) if path.suffix == ".xz" else text.encode())


def parting(path: Path, found: str) -> list[str]:
    """Return how a content differs from the stored one; nothing if it does not."""
    if not path.exists():
        return ["nothing is stored"]
    return list(compare(path.name.removesuffix(".xz"), read(path), found))


def main(description: str | None, directory: Path, makers: Makers, argv: Sequence[str]) -> None:
    """Compare files with the stored ones, or store them.

    Args:
        description: Of the command.
        directory: Where the files are stored.
        makers: Functions that return the contents, by name of the file.
        argv: Arguments of the command.

    Raises:
        SystemExit: If a content is another one.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help=f"default: all, {', '.join(makers)}")
    parser.add_argument("--make", action="store_true", help="store what is found now")
    options = parser.parse_args(argv)
    if unknown := set(options.names) - makers.keys():
        parser.error(f"files are {', '.join(makers)}, got {', '.join(sorted(unknown))}")
    # The output must not depend on the terminal.
    os.environ.update({"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"})
    parted = False
    for name in options.names or makers:
        # Output of user code may be invalid UTF-8.
        found = makers[name]().encode("utf8", "backslashreplace").decode()
        if options.make:
            write(directory / name, found)
        explained = list(_shortened(parting(directory / name, found)))
        parted |= bool(explained)
        sys.stdout.write("\n".join([f"{name}: {'parted' if explained else 'equal'}", *explained]))
        sys.stdout.write("\n")
        sys.stdout.flush()
    if parted:
        raise SystemExit(1)


def _shortened(lines: Sequence[str]) -> Iterator[str]:
    yield from lines[:MOST_DIFFERENCES]
    if len(lines) > MOST_DIFFERENCES:
        yield f"and {len(lines) - MOST_DIFFERENCES} lines more"
