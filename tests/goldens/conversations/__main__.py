"""Conversations: what is said to a controller's server, played to it again.

    python -m tests.goldens.conversations                   # compare all with what is stored
    python -m tests.goldens.conversations roles             # one
    python -m tests.goldens.conversations --make roles      # store anew, after a fault was mended
    python -m tests.goldens.conversations --make --into DIR         # store all elsewhere
    python -m tests.goldens.conversations --show talk.jsonl roles   # print a stored file

What parts is explained (README.md of the goldens).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.goldens.conversations.golden import HERE, NAMES, make, parting, store, stored


def main(argv: Sequence[str] | None = None) -> None:
    """Compare conversations with the stored ones, or store them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="default: all")
    parser.add_argument("--make", action="store_true", help="store what is said now")
    parser.add_argument("--into", type=Path, default=HERE, help="directory to store it in")
    parser.add_argument("--show", metavar="FILE", help="stored file to print")
    options = parser.parse_args(argv)
    names = options.names or NAMES
    if unknown := set(names) - set(NAMES):
        parser.error(f"conversations are {', '.join(NAMES)}, got {', '.join(sorted(unknown))}")
    if options.show:
        sys.stdout.writelines(stored(name, options.show) for name in names)
        return
    parted = False
    # Each conversation has one thread, so each process needs one core.
    with ProcessPoolExecutor(min(len(names), os.cpu_count() or 1)) as pool:
        if options.make:
            for name, content in zip(names, pool.map(make, names), strict=True):
                store(name, content, root=options.into)
            return
        for name, found in zip(names, pool.map(parting, names), strict=True):
            parted |= bool(found)
            sys.stdout.write(
                "\n".join([f"{name}: {'parted' if found else 'equal'}", *found]) + "\n"
            )
            sys.stdout.flush()
    if parted:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
