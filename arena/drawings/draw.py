"""Pictures of a game, drawn by a child that plays it again: no code of a user's runs here.

The child (``python -m arena.drawings.draw``) reads a `Game` as JSON on standard input and writes a
line of JSON for each moment, so that what was drawn before it broke or was late is kept. This
module imports nothing heavy.

Tests: `tests/arena/drawings/test_draw.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, repeat

from pydantic import TypeAdapter, ValidationError

from arena.drawings.games import find_drawing, move_of
from arena.drawings.picture import NUM_COLUMNS, Game, Moment, Picture, check_svg, printable
from arena.errors import ArenaError, ConfigError, EnvironmentFault
from arena.processes.child import serve
from arena.processes.parent import Child
from arena.users_code import users_code

MAX_BYTES, MAX_LINES = 64 << 20, 200
"""Most bytes of all pictures of a game, and most lines of a picture's text."""

NO_WINDOWS = {"SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy", "DISPLAY": ""}
"""Environment variables of a process whose environments open no window and make no sound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """Pictures of a game.

    Attributes:
        pictures: The start, and a picture after each step; fewer if there is a problem.
        names: Names of the actions that were asked for, at the moment of each picture.
        returns: Sum of each agent's rewards until the last picture.
        problem: Reason for which pictures are missing, for people. Empty: none is.
    """

    pictures: tuple[Picture, ...] = ()
    names: tuple[Mapping[str, Mapping[str, str]], ...] = ()
    returns: Mapping[str, float] = field(default_factory=dict)
    problem: str = ""


_GAME, _LINE = TypeAdapter(Game), TypeAdapter(Drawn)


def draw_game(game: Game, *, timeout_s: float = 60.0) -> Drawn:
    """Play a game again, and draw it, in a process of its own.

    Args:
        game: Game to draw.
        timeout_s: Time limit; a process that is late is killed.

    Raises:
        OSError: If the process cannot be started.
    """
    pictures: list[Picture] = []
    names: list[Mapping[str, Mapping[str, str]]] = []
    drawn, problem = Drawn(), ""
    module, number = "arena.drawings.draw", len(game.turns) + 1
    with Child(module, log="temporary", talks="output", variables=NO_WINDOWS) as child:
        lines, code = child.ask(_GAME.dump_json(game), timeout_s)
        how = f"its process ended {child.ending}"
    if code is None:
        how = f"it took over {timeout_s:g} s"
    try:
        # The last line is incomplete if the process ended while writing; `how` has the reason.
        with suppress(ValidationError):
            for line in lines:
                drawn = _LINE.validate_json(line)
                pictures += map(checked, drawn.pictures)
                names += drawn.names
                problem = drawn.problem
    except ValueError as error:
        problem = str(error)
    if len(pictures) < number and not problem:
        problem = how
    if problem:
        problem = f"{game.spec.id}: {len(pictures)} of {number} pictures could be drawn: {problem}"
    return replace(drawn, pictures=tuple(pictures), names=tuple(names), problem=problem)


def pictures_of(game: Game) -> Iterator[tuple[Moment, Picture]]:
    """Play a game again in this process, and yield each moment with its picture.

    Raises:
        ArenaError: If it cannot be played again or drawn.
    """
    # PettingZoo is imported only in the child.
    from arena.drawings.replay import SHOW_ALL_HANDS, render, replay

    place = game.launch_directory
    draw = find_drawing(game.spec.id, reference=game.drawing, launch_directory=place) or render
    if game.viewer is not None and draw is render and SHOW_ALL_HANDS.match(game.spec.id):
        raise ConfigError(
            f"{game.spec.id} draws everybody's hands, so whoever plays gets no picture"
        )
    what = game.drawing or ("render" if draw is render else "its drawing")
    moments = replay(game, renders=draw is render)
    while True:
        # `users_code` must not surround the yield, because a caller may close this generator
        # there.
        with users_code("playing it again", raises=EnvironmentFault):
            moment = next(moments, None)
        if moment is None:
            return
        with users_code(what, raises=EnvironmentFault):
            picture = draw(moment)
        if not isinstance(picture, Picture):
            raise EnvironmentFault(f"{what} must return a Picture, got {type(picture).__name__}")
        yield moment, picture


def checked(picture: Picture) -> Picture:
    """Return a picture with nothing in it that a terminal or a page would carry out.

    Raises:
        ValueError: If its SVG may do more than show.
    """
    if picture.svg:
        check_svg(picture.svg)
    lines = picture.text.splitlines()[:MAX_LINES]
    return replace(picture, text="\n".join(printable(line, width=NUM_COLUMNS) for line in lines))


def _answers(requests: Iterator[str]) -> Iterator[str]:
    """Draw the only game that is asked for, as the child."""
    returns: Mapping[str, float] = {}
    num_bytes = 0
    try:
        game = _GAME.validate_json(next(requests))
        named = chain(game.named, repeat({}))
        for (moment, picture), asked in zip(pictures_of(game), named, strict=False):
            returns = moment.returns
            names = {
                agent: {one: _name(moment, agent, one) or name for one, name in actions.items()}
                for agent, actions in asked.items()
            }
            one = Drawn(pictures=(picture,), names=(names,), returns=returns)
            line = _LINE.dump_json(one).decode()
            num_bytes += len(line)
            if num_bytes > MAX_BYTES:
                raise EnvironmentFault(f"all together may have {MAX_BYTES >> 20} MB")
            yield line
    except ArenaError as error:
        yield _LINE.dump_json(Drawn(returns=returns, problem=str(error))).decode()


def _name(moment: Moment, agent: str, action: str) -> str:
    """Return the game's name of an action; empty: it has none."""
    # Only a single choice has a name.
    move = move_of(moment, agent, int(action)) if action.isdecimal() else None
    return move.name if move else ""


if __name__ == "__main__":
    serve(_answers)
