"""Screens on a stream that lost its reader."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from tools.terminal.screen import Screen, discard


def test_a_closed_pipe_is_known_to_every_screen_on_it() -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream:
        first, second = Screen(stream), Screen(stream)
        os.close(reader)
        assert not first.is_gone
        second.print("nobody reads this")
        assert second.is_gone
        assert first.is_gone
        first.print("nor this, and it is no error")


@pytest.mark.slow
def test_a_full_disk_is_no_reader_that_has_gone() -> None:
    with Path("/dev/full").open("w") as stream:
        screen = Screen(stream)
        for _ in range(3):
            screen.print("x" * 10_000)
        assert not screen.is_gone
        # As at the end of a command: what could not be written is not tried again.
        discard(stream)


def test_a_character_that_the_encoding_lacks_ends_no_command() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
    Screen(stream).print("pläyer…")
    assert isinstance(stream.buffer, io.BytesIO)
    assert stream.buffer.getvalue() == b"pl?yer?\n"
