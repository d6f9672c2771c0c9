"""Lines that strangers cause."""

from __future__ import annotations

import logging

from arena.processes.paced_log import OneASecond


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def record(line: int, text: str, *arguments: object) -> logging.LogRecord:
    return logging.LogRecord("x", logging.WARNING, "there.py", line, text, arguments, None)


def test_each_place_logs_a_line_a_second_and_counts_the_rest() -> None:
    clock = Clock()
    paced = OneASecond(clock=clock)
    assert paced.filter(record(7, "from %s", "a"))
    for _ in range(1000):
        assert not paced.filter(record(7, "from %s", "b"))
    # Another place has a second of its own.
    assert paced.filter(record(8, "else"))
    clock.now_s = 0.9
    assert not paced.filter(record(7, "from %s", "c"))
    clock.now_s = 1.0
    assert paced.filter(said := record(7, "from %s%%", "d"))
    assert said.getMessage() == "from d% (1001 lines like it were left out)"
    clock.now_s = 2.0
    assert paced.filter(said := record(7, "from %s", "e"))
    assert said.getMessage() == "from e"
