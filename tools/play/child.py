"""Process that holds a game of a person for a page: environment, networks and users' code run here.

It reads a request a line from standard input, JSON with ``do`` and what that needs, and writes a
line of JSON for each: the state of the game, or ``error`` and the exit code of such an error, with
which the process ends. It ends with its input, too.

Tests: `tests/tools/play/test_tables.py`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from arena.errors import ArenaError
from arena.processes.child import end_with_guard
from arena.processes.questions import answering
from arena.resolve import use_code

from ..terminal.exit_codes import exit_code
from .answers import answer
from .game import PersonsGame
from .table import sit_down


def main() -> None:
    """Play one game: arguments of `sit_down` in JSON, its seed, and the directory of ``--code``."""
    end_with_guard()
    table, seed, code = sys.argv[1:]
    with answering() as output:
        try:
            use_code(Path(code) if code else None)
            game = PersonsGame(sit_down(**json.loads(table)), seed=int(seed))
            for line in sys.stdin:
                print(json.dumps(answer(game, json.loads(line))), file=output, flush=True)
        except ArenaError as error:
            last = {"error": str(error), "code": exit_code(error)}
            print(json.dumps(last), file=output, flush=True)
    # An environment may leave threads behind that would keep the interpreter from ending.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
