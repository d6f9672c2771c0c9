"""Logs that keep their beginning and the latest, and count what lies between."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.processes.bounded_log import (
    HEAD_BYTES,
    MAX_BYTES,
    TAIL_BYTES,
    BoundedLog,
    open_shortened,
)
from arena.processes.bursts import TOGETHER_S, Bursts
from arena.processes.paced_log import OneASecond
from tests.support import Clock

MARK = re.compile(rb"\n\[arena: (\d+) bytes of this log were left out here\]\n")


def lines(first: int, last: int) -> bytes:
    """Numbered lines of 100 bytes each."""
    return b"".join(b"%099d\n" % number for number in range(first, last))


def parts(content: bytes) -> tuple[bytes, int, bytes]:
    """What comes before the mark, the number in it, and what comes after."""
    before, number, after = MARK.split(content)
    return before, int(number), after


@settings(max_examples=25)
@given(sizes=st.lists(st.integers(1, 1000), min_size=1, max_size=40), restarts=st.integers(1, 4))
def test_of_more_the_beginning_and_the_end_stay_and_nothing_is_uncounted(
    tmp_path_factory: object, sizes: list[int], restarts: int
) -> None:
    path = Path(tmp_path_factory.mktemp("log")) / "log"  # type: ignore[attr-defined]
    written = 0
    for number in range(restarts):
        with BoundedLog(path) as log:
            for size in sizes[number::restarts]:
                log.write(lines(written, written + size))
                written += size
                assert path.stat().st_size <= MAX_BYTES
    content = path.read_bytes()
    if 100 * written <= MAX_BYTES:
        assert content == lines(0, written)
        return
    before, left_out, after = parts(content)
    num_before, num_after = len(before) // 100, len(after) // 100
    assert before == lines(0, num_before)
    assert after == lines(written - num_after, written)
    assert left_out == 100 * (written - num_before - num_after)
    assert len(before) <= HEAD_BYTES
    # One line may be cut at its beginning, and is then left out.
    assert len(after) > min(TAIL_BYTES, 100 * written) - HEAD_BYTES - 200


def test_output_without_lines_is_bounded_too(tmp_path: Path) -> None:
    with BoundedLog(tmp_path / "log") as log:
        for _ in range(50):
            log.write(b"x" * 60_000)
        log.write(b"the end")
    before, left_out, after = parts((tmp_path / "log").read_bytes())
    assert before == b"x" * HEAD_BYTES
    assert after.endswith(b"xthe end")
    assert HEAD_BYTES + left_out + len(after) == 50 * 60_000 + len(b"the end")


def test_a_log_of_gigabytes_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.write(lines(0, 100))
        # The file has a hole, so it needs no space on the disk.
        file.truncate(5 << 30)
        file.seek(0, 2)
        file.write(b"\n" + lines(100, 5000))
    open_shortened(path).close()
    before, left_out, after = parts(path.read_bytes())
    assert before == lines(0, 100) + bytes(HEAD_BYTES - 10_000)
    assert after == lines(5000 - len(after) // 100, 5000)
    assert left_out > (5 << 30) - TAIL_BYTES


def test_what_looks_like_a_mark_is_text(tmp_path: Path) -> None:
    said = b"[arena: [arena: 7 bytes of this log were left out here]\n"
    with BoundedLog(tmp_path / "log") as log:
        log.write(said)
        for number in range(40):
            log.write(lines(1000 * number, 1000 * (number + 1)))
    content = (tmp_path / "log").read_bytes()
    before, left_out, after = parts(content[len(said) :])
    assert content.startswith(said)
    assert len(said + before) + left_out + len(after) == len(said) + 40 * 100_000


@pytest.mark.parametrize("opened", [BoundedLog, open_shortened])
def test_a_log_is_a_file_of_its_own(opened: Callable[[Path], object], tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.write_bytes(bytes(2 * MAX_BYTES))
    (tmp_path / "link").symlink_to(notes)
    (tmp_path / "nowhere").symlink_to(tmp_path / "none")
    os.mkfifo(tmp_path / "pipe")
    for name, words in (("link", "not a link"), ("nowhere", "not a link"), ("pipe", "regular")):
        with pytest.raises(OSError, match=words) as refused:
            opened(tmp_path / name)
        assert refused.value.filename == str(tmp_path / name)
    assert notes.read_bytes() == bytes(2 * MAX_BYTES)
    assert not (tmp_path / "none").exists()


def test_what_others_append_to_a_file_is_shortened_when_it_is_opened(tmp_path: Path) -> None:
    for _ in range(40):
        with open_shortened(tmp_path / "log") as file:
            os.write(file.fileno(), lines(0, 1000))
    assert TAIL_BYTES < (tmp_path / "log").stat().st_size < MAX_BYTES + 100_001


def test_several_may_write_to_one(tmp_path: Path) -> None:
    def write(letter: bytes) -> None:
        with BoundedLog(tmp_path / "log") as log:
            for _ in range(400):
                log.write(letter * 4999 + b"\n")

    threads = [threading.Thread(target=write, args=(letter,)) for letter in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    before, left_out, after = parts((tmp_path / "log").read_bytes())
    kept = (before + after).splitlines()
    # No line is torn, and each missing line is counted.
    assert {(len(line), len(set(line))) for line in kept} == {(4999, 1)}
    assert len(before) + len(after) + left_out == 3 * 400 * 5000


def record(line: int, text: str, *arguments: object) -> logging.LogRecord:
    return logging.LogRecord("x", logging.WARNING, "there.py", line, text, arguments, None)


def test_each_place_logs_a_line_a_second_and_counts_the_rest() -> None:
    clock = Clock()
    paced = OneASecond(clock=clock)
    assert paced.filter(record(7, "from %s", "a"))
    for _ in range(1000):
        assert not paced.filter(record(7, "from %s", "b"))
    # Another place in the code has its own limit of one a second.
    assert paced.filter(record(8, "else"))
    clock.now_s = 0.9
    assert not paced.filter(record(7, "from %s", "c"))
    clock.now_s = 1.0
    assert paced.filter(said := record(7, "from %s%%", "d"))
    assert said.getMessage() == "from d% (1001 lines like it were left out)"
    clock.now_s = 2.0
    assert paced.filter(said := record(7, "from %s", "e"))
    assert said.getMessage() == "from e"


def test_copies_of_one_signal_are_one_request_and_a_later_one_is_another() -> None:
    now_s = 0.0
    bursts = Bursts(clock=lambda: now_s)
    assert bursts.is_new("SIGTERM")
    for _ in range(3):
        now_s += 0.3 * TOGETHER_S
        assert not bursts.is_new("SIGTERM")
    assert bursts.is_new("SIGINT")
    now_s += 1.1 * TOGETHER_S
    assert bursts.is_new("SIGTERM")


def test_a_key_that_is_hammered_is_several_requests() -> None:
    now_s = 0.0
    bursts = Bursts(clock=lambda: now_s)
    new = []
    for _ in range(20):
        new.append(bursts.is_new("SIGINT"))
        now_s += 0.21 * TOGETHER_S
    assert sum(new) == 4
