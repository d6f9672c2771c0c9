"""Screens on a stream that lost its reader."""

from __future__ import annotations

import os

from tools.terminal.screen import Screen


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
