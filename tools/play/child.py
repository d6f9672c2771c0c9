"""Process that holds a game of a person for a page: environment, networks and users' code run here.

It reads a request a line from standard input, JSON with ``do`` and what that needs, and writes a
line of JSON for each: the state of the game, or ``error`` and the exit code of such an error, with
which the process ends. It ends with its input, too.

Tests: `tests/tools/play/test_tables.py`.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from arena.errors import ArenaError
from arena.processes.child import serve
from arena.resolve import use_code

from ..terminal.exit_codes import exit_code
from .answers import answer
from .game import PersonsGame
from .table import sit_down


def _answers(requests: Iterator[str]) -> Iterator[str]:
    """Play one game. Arguments of the process are those of `sit_down` in JSON, a seed, ``--code``,
    and the seconds without a request after which it ends.
    """
    table, seed, code, idle_s = sys.argv[1:]
    try:
        use_code(Path(code) if code else None)
        game = PersonsGame(sit_down(**json.loads(table)), seed=int(seed))
        # SIGALRM ends the process by default if no request comes in time.
        signal.setitimer(signal.ITIMER_REAL, float(idle_s))
        for line in requests:
            signal.setitimer(signal.ITIMER_REAL, float(idle_s))
            yield json.dumps(answer(game, json.loads(line)))
    except ArenaError as error:
        yield json.dumps({"error": str(error), "code": exit_code(error)})


if __name__ == "__main__":
    serve(_answers)
