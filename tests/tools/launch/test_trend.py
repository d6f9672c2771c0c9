"""The live display on a terminal: ratings, their change since the fit before, and its width."""

from __future__ import annotations

import importlib
import io
import re
from typing import Any

import pytest

from tests.populations.controller.simulated import DUEL, World, make_world

display: Any = importlib.import_module("populations.commands.launch.display")
screens: Any = importlib.import_module("populations.commands.terminal.screen")


def lines(**ratings: float | None) -> list[Any]:
    """Return standings as far as trends read them."""

    class Line:
        def __init__(self, player: str, rating: float | None) -> None:
            self.player, self.rating = player, rating

    return [Line(player, rating) for player, rating in ratings.items()]


def test_a_change_is_that_since_the_fit_before() -> None:
    trend = display.Trend()
    first = lines(a=None, b=100.0, c=50.0)
    trend.record(None, first)
    trend.record(1, first)
    assert [trend.change(line, is_ascii=False) for line in first] == ["-", "= 0", "= 0"]
    second = lines(a=3.0, b=112.4, c=41.0)
    trend.record(2, second)
    assert [trend.change(line, is_ascii=False) for line in second] == ["-", "↑ +12", "↓ -9"]
    assert [trend.change(line, is_ascii=True) for line in second] == ["-", "+12", "-9"]
    # The same fit once more changes nothing.
    trend.record(2, second)
    assert trend.change(second[1], is_ascii=True) == "+12"
    trend.record(3, second)
    assert trend.change(second[1], is_ascii=True) == "= 0"


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_the_live_display_fits_80_columns(encoding: str) -> None:
    from rich.live import Live

    world: World = make_world(DUEL)
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    screen = screens.Screen(stream, force_terminal=True, width=80, height=60, no_color=True)
    status: dict[str, Any] = {"elapsed_s": 0.0, "agent_steps_per_s": None, "alerts": []}
    with Live(console=screen, auto_refresh=False) as live:
        display.LiveDisplay(screen, live, world.state).refresh(status)
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    # The cursor goes back to the beginning of a line to draw it anew.
    drawn = buffer.getvalue().decode(encoding).replace("\r", "\n")
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", drawn)
    assert max(map(len, text.splitlines())) <= 80
    assert "starting learners, then training" in text
    for name in ("player", "rating", "95%", "change", "matches", "gen", "steps", "p000"):
        assert name in text
