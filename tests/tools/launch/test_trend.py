"""The live display on a terminal: ratings, their change since the fit before, and its width."""

from __future__ import annotations

import importlib
import io
import math
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from arena.types import Entrant
from populations.league.ratings import Ratings
from populations.records.rows import RatingsRow
from tests.populations.controller.simulated import DUEL, World, make_world

display: Any = importlib.import_module("populations.commands.launch.display")
screens: Any = importlib.import_module("populations.commands.terminal.screen")


def lines(**weights: str | None) -> list[Any]:
    """Return standings as far as trends read them."""
    return [SimpleNamespace(player=player, weights=one) for player, one in weights.items()]


def fit(**ratings: float) -> Ratings:
    """Return a fit of weights."""
    return Ratings(
        RatingsRow(
            population="player",
            entrants=tuple(map(Entrant, ratings)),
            ratings=tuple(ratings.values()),
            deviations=(1.0,) * len(ratings),
            cyclicity=0.0,
            num_tallies=1,
        )
    )


def test_a_change_is_that_of_the_weights_since_the_fit_before_by_the_last_fit() -> None:
    trend = display.Trend()

    def changes(standing: list[Any], ratings: Ratings, *, is_ascii: bool = False) -> list[str]:
        return [trend.change(line, ratings=ratings, is_ascii=is_ascii) for line in standing]

    first = lines(a=None, b="b1", c="c1", d="d1")
    trend.record(None, first)
    trend.record(1, first)
    assert changes(first, fit(b1=100.0, c1=50.0)) == ["-", "= 0", "= 0", "-"]
    # The scale moved down by 70 for all players, so equal weights have gained nothing.
    second, moved = lines(a="a1", b="b2", c="c1", d="d1"), fit(a1=3.0, b1=30.0, b2=42.4, c1=-20.0)
    trend.record(2, second)
    assert changes(second, moved) == ["-", "↑ +12", "= 0", "-"]
    assert changes(second, moved, is_ascii=True)[1] == "+12"
    # The same fit again changes nothing.
    trend.record(2, second)
    assert changes(second, moved)[1] == "↑ +12"
    third = lines(a="a1", b="b2", c="c2", d="d1")
    trend.record(3, third)
    assert changes(third, fit(a1=0.0, b2=0.0, c1=9.0, c2=0.0)) == ["= 0", "= 0", "↓ -9", "-"]


STATUS: dict[str, Any] = {"elapsed_s": 0.0, "agent_steps_per_s": None, "alerts": []}


def screen_of(encoding: str = "utf-8") -> tuple[Any, Callable[[], str]]:
    """Return a terminal of 80 columns in memory, and a function of what was written on it."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)

    def written() -> str:
        stream.flush()
        buffer = stream.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue().decode(encoding)

    screen = screens.Screen(stream, force_terminal=True, width=80, height=60, no_color=True)
    return screen, written


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_the_live_display_fits_80_columns(encoding: str) -> None:
    from rich.live import Live

    world: World = make_world(DUEL)
    screen, written = screen_of(encoding)
    with Live(console=screen, auto_refresh=False) as live:
        display.LiveDisplay(screen, live, world.state, Path()).refresh(STATUS)
    # To redraw, the cursor goes back to the beginning of a line.
    drawn = written().replace("\r", "\n")
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", drawn)
    assert max(map(len, text.splitlines())) <= 80
    assert "starting learners, then training" in text
    for name in ("player", "rating", "95%", "change", "matches", "gen", "steps", "p000"):
        assert name in text


def test_a_table_is_drawn_anew_only_where_it_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.live import Live

    world: World = make_world(DUEL)
    tables, drawn, framed = world.state.tables, list[str](), display.framed

    def counted(table: Any, **style: Any) -> Any:
        drawn.append(style["title"])
        return framed(table, **style)

    monkeypatch.setattr(display, "framed", counted)
    # Drawing counts as free, and the terminal can draw, whatever other tests have set.
    monkeypatch.setattr(display, "SHARE", math.inf)
    monkeypatch.setenv("TERM", "xterm")
    screen, written = screen_of()
    with Live(console=screen, auto_refresh=False) as live:
        shown = display.LiveDisplay(screen, live, world.state, Path())
        shown.refresh(STATUS)
        first = list(drawn)
        shown.refresh({**STATUS, "elapsed_s": 1.0})
        assert drawn == first == ["player"]
        (one, *_) = tables.policies.values()
        tables.policies[one.policy] = replace(one, agent_steps=777)
        shown.refresh(STATUS)
        assert drawn == [*first, "player"]
        assert "777" in written()
        screen.width = 100
        shown.refresh(STATUS)
        assert drawn == [*first, "player", "player"]


def test_a_display_that_takes_long_is_drawn_seldom_and_a_new_phase_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world: World = make_world(DUEL)
    clock = SimpleNamespace(now_s=100.0, spent_s=0.0)

    class Live:
        drawn = 0

        def update(self, parts: Any, *, refresh: bool) -> None:
            clock.spent_s += 0.03
            self.drawn += 1

    monkeypatch.setattr(
        display,
        "time",
        SimpleNamespace(monotonic=lambda: clock.now_s, thread_time=lambda: clock.spent_s),
    )
    live = Live()
    shown = display.LiveDisplay(screen_of()[0], live, world.state, Path())
    for _ in range(30):
        shown.refresh(STATUS)
        clock.now_s += 1.0
    # 30 ms are one hundredth of three seconds.
    assert live.drawn == 10
    world.state.phase.name = "stopping"
    shown.refresh(STATUS)
    assert live.drawn == 11
