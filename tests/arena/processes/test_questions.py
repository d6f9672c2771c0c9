from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from arena.processes.bounded_log import MAX_BYTES
from arena.processes.questions import Reply, ask


def asked(code: str, question: bytes = b"", *, timeout_s: float = 60.0) -> Reply:
    return ask([sys.executable, "-I", "-c", code], question, timeout_s=timeout_s)


def test_a_reply_is_all_of_the_output_and_the_exit_code() -> None:
    code = "import sys; print(2 * sys.stdin.read()); print('by the way', file=sys.stderr); exit(3)"
    assert asked(code, b"ab") == Reply(b"abab\n", b"by the way\n", 3)


def test_who_prints_without_end_fills_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = (
        "import os, sys\n"
        "for number in range(40):\n"
        "    os.write(2, 100_000 * b'x' + b'%d\\n' % number)\n"
        "print('answer')"
    )
    reply = asked(code)
    assert (reply.output, reply.exit_code) == (b"answer\n", 0)
    # Of 4 MB; the end is the latest.
    assert len(reply.errors) <= MAX_BYTES
    assert reply.errors.endswith(b"x39\n")
    assert not list(tmp_path.iterdir())


def test_who_takes_too_long_is_killed_and_its_output_stays() -> None:
    code = "import signal; print('facts', flush=True); signal.pause()"
    reply = asked(code, timeout_s=1.0)
    assert (reply.output, reply.exit_code) == (b"facts\n", None)
