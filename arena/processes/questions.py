"""A question to a process of its own: bytes in, bytes out. Torch-free.

Tests: `tests/arena/processes/test_questions.py`.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from arena.processes.parent import spawn


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
