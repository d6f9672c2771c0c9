"""A question to a process of its own: bytes in, bytes out. Torch-free.

Tests: `tests/arena/processes/test_questions.py`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TextIO

from arena.processes.parent import spawn

NUM_LAST_LINES = 20
"""Lines of a process's standard error that are shown if it dies."""


class Reply(NamedTuple):
    """Reply of a process.

    Attributes:
        output: All of its standard output.
        errors: Its standard error, the beginning and the latest: code of users may print without
            end.
        exit_code: Its exit code, -n: by signal n. None: it took too long and was killed.
    """

    output: bytes
    errors: bytes
    exit_code: int | None

    @property
    def ending(self) -> str:
        """Exit code or signal, and its last lines. Not of one that took too long."""
        code = self.exit_code or 0
        how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
        # An environment may print any bytes.
        lines = self.errors.decode("utf8", errors="replace").strip().splitlines()
        return f"({how}): " + ("\n".join(lines[-NUM_LAST_LINES:]) or "it said nothing")

    @property
    def last_line(self) -> str:
        """Last line of what a command of Arena said, without its name; else how it ended."""
        lines = self.errors.decode("utf8", errors="replace").strip().splitlines()
        return lines[-1].removeprefix("arena: ") if lines else self.ending


@contextlib.contextmanager
def answering() -> Iterator[TextIO]:
    """Yield this process's standard output; all else that it prints goes to standard error."""
    # A copy of descriptor 1, which then becomes standard error: code of users, and C code below
    # it, may print.
    with os.fdopen(os.dup(1), "w", encoding="utf8") as output:
        os.dup2(2, 1)
        yield output


def ask(
    arguments: Sequence[str],
    question: bytes,
    *,
    timeout_s: float,
    directory: str | None = None,
    variables: Mapping[str, str] | None = None,
) -> Reply:
    """Start a process, write a question to its standard input, and return its reply at its end.

    Args:
        arguments: Command; the first one is the path of an interpreter of Python.
        question: All of its standard input.
        timeout_s: Time limit.
        directory: Working directory; None: this process's.
        variables: Environment variables beside this process's.

    Raises:
        OSError: If the process cannot be started.
    """
    with tempfile.TemporaryDirectory(prefix="arena-errors-") as place:
        log = Path(place) / "question.log"
        with spawn(
            arguments,
            log_path=log,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            directory=directory,
            variables=variables,
        ) as child:
            try:
                output, _ = child.communicate(question, timeout_s=timeout_s)
                exit_code: int | None = child.wait()
            except subprocess.TimeoutExpired:
                child.kill()
                # It may have written what counts before.
                output, exit_code = child.communicate()[0], None
            return Reply(output, log.read_bytes(), exit_code)
