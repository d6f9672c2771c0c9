"""Files of a game: a page, text, a film, an episode of Kaggle's, by the ending of their names.

Tests: `tests/tools/replay/test_files.py`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from populations.league.names import short_name
from populations.views.log import game
from populations.views.parts import Document, Row

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from .retelling import Retold

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
    from arena.errors import ConfigError

    if path.suffix not in WRITERS:
        raise ConfigError(f"--to takes a name that ends in {', '.join(WRITERS)}, got {path.name!r}")


def write_file(told: Retold, path: Path) -> None:
    """Write a game to a file of the form that its name's ending says.

    Raises:
        ConfigError: If the game has no such form, or a package is missing.
        StorageError: If the disk refuses.
    """
    from arena.files import words_of
    from populations.errors import StorageError

    data = WRITERS[path.suffix](told)
    try:
        path.write_bytes(data)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {words_of(error)}") from error


def _text(told: Retold) -> bytes:
    import io

    from populations.views.parts import Room

    from ..show.text import drawn
    from ..terminal.screen import Screen

    stream = io.StringIO()
    screen = Screen(stream, width=TEXT_WIDTH, highlight=False)
    room = Room(width=TEXT_WIDTH, populations=told.populations, is_ascii=True, more="--json")
    for part in drawn(game(told.document), room):
        screen.print(part)
    return stream.getvalue().encode()


def _page(told: Retold) -> bytes:
    from ..show.html import Hypertext, Links
    from ..web.render import Content, render_alone

    medium = Hypertext(links=Links(is_static=True), populations=told.populations)
    content = Content(
        title=title_of(told.document, populations=told.populations),
        blocks=medium.blocks(game(told.document)),
    )
    return render_alone(content).encode()


def title_of(document: Document, *, populations: tuple[str, ...]) -> str:
    """Return the title of a game: who plays whom, in what."""
    seats = document["seats"]
    names = (short_name(str(seat["player"]), populations=populations) for seat in seats)
    return f"{' v '.join(names)}, {document['environment']}"


def _film(suffix: str) -> Callable[[Retold], bytes]:
    def write(told: Retold) -> bytes:
        from arena.errors import ConfigError

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
        if suffix == ".gif":
            return bytes(
                iio.imwrite("<bytes>", frames, extension=".gif", duration=1000 * STEP_S, loop=0)
            )
        return bytes(
            iio.imwrite("<bytes>", frames, extension=".mp4", fps=1 / STEP_S, codec="libx264")
        )

    return write


def _episode(told: Retold) -> bytes:
    import json

    from .kaggle import episode

    return json.dumps(episode(told.document)).encode()


def _frames(told: Retold) -> Iterator[npt.NDArray[np.uint8]]:
    """Yield a picture of each step, all of one size. uint8 [height, width, 3]."""
    import io

    import numpy as np
    from PIL import Image

    steps = told.document["steps"]
    images = []
    for step in steps:
        picture = step.get("picture")
        pixels = b"" if picture is None else _pixels(picture)
        if pixels:
            images.append(Image.open(io.BytesIO(pixels)).convert("RGBA"))
    if not images:
        return
    # Codecs divide a picture into squares of 16 pixels.
    width = FILM_WIDTH
    height = max(round(image.height * width / image.width) for image in images)
    height += -height % 16
    for image in images:
        scaled = image.resize((width, round(image.height * width / image.width)))
        paper = Image.new("RGB", (width, height), "white")
        paper.paste(scaled, (0, 0), scaled)
        yield np.asarray(paper)


def _pixels(picture: Row) -> bytes:
    """Return a picture as PNG; empty: it is text alone."""
    if picture["png"]:
        return base64.b64decode(str(picture["png"]))
    if not picture["svg"]:
        return b""
    import vl_convert

    return bytes(vl_convert.svg_to_png(str(picture["svg"]), scale=FILM_WIDTH / 360))


WRITERS: Mapping[str, Callable[[Retold], bytes]] = {
    ".html": _page,
    ".gif": _film(".gif"),
    ".mp4": _film(".mp4"),
    ".txt": _text,
    ".json": _episode,
}
