"""Files of a game: a page, text, a film, an episode of Kaggle's, by the ending of their names.

Tests: `tests/tools/replay/test_page.py`.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from arena.errors import ConfigError
from arena.files import words_of
from populations.errors import StorageError
from populations.league.names import short_name
from populations.views.log import game
from populations.views.parts import Room, Row

from ..league.documents import Opened
from ..show.html import Hypertext, Links
from ..show.text import drawn
from ..terminal.screen import Screen
from ..web.render import Content, render_alone
from .kaggle import episode

TEXT_WIDTH = 120
"""Characters of a line of a file of text."""

FILM_WIDTH = 480
"""Pixels of a film."""

STEP_S = 0.8
"""Seconds that a film shows a step."""

LAST_STEPS = 3
"""Times of a step that it shows the last one."""


def check_ending(path: Path) -> None:
    """Refuse a file that no writer is for.

    Raises:
        ConfigError: If its name has another ending.
    """
    if path.suffix not in WRITERS:
        raise ConfigError(f"--to takes a name that ends in {', '.join(WRITERS)}, got {path.name!r}")


def write_file(told: Opened, path: Path) -> None:
    """Write a game to a file of the form that its name's ending says.

    Raises:
        ConfigError: If the game has no such form, or a package is missing.
        StorageError: If the disk refuses.
    """
    data = WRITERS[path.suffix](told)
    try:
        path.write_bytes(data)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {words_of(error)}") from error


def _text(told: Opened) -> bytes:
    stream = io.StringIO()
    screen = Screen(stream, width=TEXT_WIDTH, highlight=False)
    room = Room(width=TEXT_WIDTH, populations=told.populations, is_ascii=True, more="--json")
    for part in drawn(game(told.document), room):
        screen.print(part)
    return stream.getvalue().encode()


def _page(told: Opened) -> bytes:
    medium = Hypertext(links=Links(is_static=True), populations=told.populations)
    players = [str(seat["player"]) for seat in told.document["seats"]]
    names = (short_name(player, populations=told.populations) for player in players)
    title = f"{' v '.join(names)}, {told.document['environment']}"
    return render_alone(Content(title=title, blocks=medium.blocks(game(told.document)))).encode()


def _film(suffix: str, look: Mapping[str, Any]) -> Callable[[Opened], bytes]:
    def write(told: Opened) -> bytes:
        try:
            import imageio.v3 as iio
        except ImportError as error:
            raise ConfigError(
                f"{suffix} needs imageio: pip install 'imageio[ffmpeg]' pillow vl-convert-python"
            ) from error
        frames = list(_frames(told))
        if not frames:
            raise ConfigError(
                f"{told.document['environment']} has no pictures, of which a film could be made"
            )
        frames += frames[-1:] * (LAST_STEPS - 1)
        return bytes(iio.imwrite("<bytes>", frames, extension=suffix, **look))

    return write


def _frames(told: Opened) -> Iterator[npt.NDArray[np.uint8]]:
    """Yield a picture of each step, all of one size. uint8 [height, width, 3]."""
    from PIL import Image

    pixels = (_pixels(step["picture"]) for step in told.document["steps"] if "picture" in step)
    images = [Image.open(io.BytesIO(one)).convert("RGBA") for one in pixels if one]
    if not images:
        return
    # Video codecs divide a picture into blocks of 16 pixels.
    scaled = [
        one.resize((FILM_WIDTH, round(one.height * FILM_WIDTH / one.width))) for one in images
    ]
    height = max(image.height for image in scaled)
    for image in scaled:
        paper = Image.new("RGB", (FILM_WIDTH, height + -height % 16), "white")
        paper.paste(image, (0, 0), image)
        yield np.asarray(paper)


def _pixels(picture: Row) -> bytes:
    """Return a picture as PNG; empty: it is text alone."""
    if picture["png"]:
        return base64.b64decode(str(picture["png"]))
    if not picture["svg"]:
        return b""
    import vl_convert

    return bytes(vl_convert.svg_to_png(str(picture["svg"]), scale=FILM_WIDTH / 360))


WRITERS: Mapping[str, Callable[[Opened], bytes]] = {
    ".html": _page,
    ".gif": _film(".gif", {"duration": 1000 * STEP_S, "loop": 0}),
    ".mp4": _film(".mp4", {"fps": 1 / STEP_S, "codec": "libx264"}),
    ".txt": _text,
    ".json": lambda told: json.dumps(episode(told.document)).encode(),
}
