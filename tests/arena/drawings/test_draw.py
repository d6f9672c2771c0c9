from __future__ import annotations

import base64
import io
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from arena.drawings.draw import draw_game
from arena.drawings.picture import Game, check_svg
from arena.environment_spec import AgentSpec
from arena.resolve import NO_CODE
from tests.arena.drawings.conftest import ASSETS, PlayRandomly
from tests.populations.rows import make_spec

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("processes")]

AGENT = AgentSpec(
    observation={"kind": "Discrete", "n": 9, "start": 0},
    action={"kind": "Discrete", "n": 3, "start": 1},
    mask=None,
)
LEFT = "rendering:env: {} of 5 pictures could be drawn: "
PIXELS = "render must return text, or pixels as uint8 of height x width x 3, got "


def game(num_turns: int = 4, drawing: str | None = None, **kwargs: object) -> Game:
    spec = make_spec("rendering:env", ("a", "b"), api="parallel", a=AGENT, b=AGENT)
    spec = replace(spec, kwargs=kwargs)
    # The actions of the drawing count from 0, those of this environment from 1.
    turns = ({"b": 2, "a": 0},) * num_turns
    return Game(spec=spec, seed=3, turns=turns, launch_directory=ASSETS, drawing=drawing)


def test_pixels_arrive_as_they_were_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv("SDL_VIDEODRIVER", "x11")
    drawn = draw_game(game())
    assert drawn.problem == ""
    assert drawn.returns == {"a": 4.0, "b": 12.0}
    frames = [
        np.asarray(Image.open(io.BytesIO(base64.b64decode(one.png)))) for one in drawn.pictures
    ]
    for step, frame in enumerate(frames):
        expected = np.zeros((20, 30, 3), dtype=np.uint8)
        expected[:5, : 5 + step] = (200, 10, 0)
        assert np.array_equal(frame, expected)
    assert len(frames) == 5


def test_actions_have_the_names_by_which_people_play_them(play_randomly: PlayRandomly) -> None:
    played, _ = play_randomly("classic/connect_four-v3", most=3)
    named = ({"player_0": {"0": "0", "6": "6"}}, {"player_1": {"3": "3", "[3.5]": "3.5"}})
    drawn = draw_game(replace(played, named=named))
    assert drawn.names == (
        {"player_0": {"0": "1", "6": "7"}},
        {"player_1": {"3": "4", "[3.5]": "3.5"}},
        {},
        {},
    )
    # A game without names for its moves keeps the given names.
    given = {"a": {"0": "1"}}
    assert draw_game(replace(game(2), named=(given,))).names == (given, {}, {})


def test_text_arrives_without_what_a_terminal_carries_out() -> None:
    drawn = draw_game(game(modes=["ansi"]))
    assert [one.text for one in drawn.pictures] == [
        f"step {step}\N{REPLACEMENT CHARACTER}\n{'w' * 77}..." for step in range(5)
    ]


@pytest.mark.parametrize(
    ("shows", "rest"),
    [
        ("crash", "its process ended (SIGKILL): it said nothing"),
        ("exit", "its process ended (exit code 0): it said nothing"),
        ("raise", "render raised RuntimeError: no more paint\n  File "),
        ("huge", "render must return at most 4,194,304 pixels, got 5000x5000x3"),
        ("floats", PIXELS + "ndarray float64 20x30x3"),
        ("nothing", PIXELS + "NoneType object "),
    ],
)
def test_what_breaks_keeps_its_pictures_and_says_why(shows: str, rest: str) -> None:
    drawn = draw_game(game(shows=shows))
    assert [bool(one.png) for one in drawn.pictures] == [True, True]
    assert drawn.problem.startswith(LEFT.format(2) + rest)
    assert drawn.returns == {"a": 1.0, "b": 3.0}


def test_pictures_of_a_game_have_a_limit_together() -> None:
    # A picture that cannot be compressed takes 7.7 MB as text.
    drawn = draw_game(game(12, length=12, shows="noise"))
    assert len(drawn.pictures) == 2 + 8
    assert drawn.problem.endswith("10 of 13 pictures could be drawn: all together may have 64 MB")


def test_one_that_hangs_is_ended() -> None:
    drawn = draw_game(game(shows="hang"), timeout_s=8.0)
    assert len(drawn.pictures) == 2
    assert drawn.problem == LEFT.format(2) + "it took over 8 s"


def test_what_it_prints_is_no_picture() -> None:
    drawn = draw_game(game(shows="prints"))
    assert (len(drawn.pictures), drawn.problem) == (5, "")


def test_one_without_a_mode_says_what_to_do() -> None:
    drawn = draw_game(game(modes=["human"]))
    assert drawn.problem.startswith(
        LEFT.format(0)
        + "its metadata must have one of the render modes rgb_array and ansi, got ['human']"
    )


def test_a_drawing_of_a_users_own() -> None:
    drawn = draw_game(game(drawing="rendering:draw", modes=[]))
    assert drawn.pictures[0].text == "start\n{}"
    assert drawn.pictures[2].text == "2. a, b: named\n{'a': 2.0, 'b': 6.0}"
    assert (len(drawn.pictures), drawn.problem) == (5, "")


@pytest.mark.parametrize(
    ("drawing", "rest"),
    [
        ("draw_script", "an SVG must be shapes and text, got the element 'script'"),
        ("draw_nothing", "rendering:draw_nothing must return a Picture, got NoneType"),
        ("draw_wrong", "rendering:draw_wrong raised LookupError: no colour is left\n  File "),
        ("ASSETS", "rendering:ASSETS: rendering has no 'ASSETS'"),
    ],
)
def test_a_wrong_drawing_is_named(drawing: str, rest: str) -> None:
    drawn = draw_game(game(drawing=f"rendering:{drawing}"))
    assert drawn.pictures == ()
    assert drawn.problem.startswith(LEFT.format(0) + rest)


def test_code_that_only_a_file_names_is_not_imported() -> None:
    drawn = draw_game(replace(game(drawing="rendering:draw"), launch_directory=NO_CODE))
    assert "rendering:draw is code that only a file names" in drawn.problem


def test_a_game_that_goes_another_way_is_noticed(play_randomly: PlayRandomly) -> None:
    played, _ = play_randomly("classic/tictactoe-v3", seed=2)
    first, second, *rest = played.turns
    swapped = draw_game(replace(played, turns=(second, first, *rest)))
    assert "player_1 is on turn where player_2 decided" in swapped.problem
    longer = draw_game(replace(played, turns=(*played.turns, {"player_1": 0})))
    number = len(played.turns)
    assert f"it is over after {number} of {number + 1} steps" in longer.problem


def test_the_process_that_asks_imports_no_environment() -> None:
    heavy = "{'torch', 'pettingzoo', 'pygame', 'pyspiel'}"
    code = f"import sys, arena.drawings.draw; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    "svg",
    [
        "<svg",
        "no picture",
        '<!DOCTYPE svg [<!ENTITY a "b">]><svg/>',
        '<svg onload="x()"/>',
        '<svg><a href="javascript:x()"/></svg>',
        '<svg><rect style="fill:red"/></svg>',
        '<svg><rect fill="url(http://there)"/></svg>',
        "<svg><image/></svg>",
        '<svg xmlns:x="http://www.w3.org/1999/xlink"><g x:href="y"/></svg>',
        '<x:svg xmlns:x="http://elsewhere"/>',
    ],
)
def test_an_svg_that_may_do_more_than_show_is_refused(svg: str) -> None:
    with pytest.raises(ValueError, match="an SVG must"):
        check_svg(svg)
