"""Pictures by PettingZoo's own ``render``. Runs in the child of `arena.drawings.draw`.

Tests: `tests/arena/drawings/test_draw.py`.
"""

from __future__ import annotations

import base64
import io
import re

import numpy as np

from arena.drawings.picture import Moment, Picture
from arena.errors import ConfigError, EnvironmentFault

MODES = ("rgb_array", "ansi")
"""Values of ``render_mode`` that give a picture, the best first."""

SHOW_ALL_HANDS = re.compile(r"classic/(leduc_holdem|texas_holdem|gin_rummy|hanabi)")
"""Environments whose pictures show what an agent must not see."""

MAX_PIXELS = 1 << 22
ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
"""Colours and the like of a terminal."""


def render_mode_of(env: object) -> str:
    """Return the ``render_mode`` with which an environment draws itself.

    Raises:
        ConfigError: If it has none that gives a picture.
    """
    modes = list(getattr(env, "metadata", {}).get("render_modes", ()))
    for mode in MODES:
        if mode in modes:
            return mode
    raise ConfigError(
        f"its metadata must have one of the render modes {' and '.join(MODES)}, got {modes}; or a "
        "function of yours draws it (docs/how-to/drawing.md)"
    )


def render(moment: Moment) -> Picture:
    """Return what an environment renders.

    Raises:
        EnvironmentFault: If that is neither text nor pixels.
    """
    shown = moment.env.render()
    if isinstance(shown, str):
        return Picture(text=ESCAPES.sub("", shown))
    frame = np.asarray(shown)
    shape = "x".join(map(str, frame.shape))
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3 or not frame.size:
        raise EnvironmentFault(
            "render must return text, or pixels as uint8 of height x width x 3, got "
            f"{type(shown).__name__} {frame.dtype} {shape}"
        )
    if frame.size > 3 * MAX_PIXELS:
        raise EnvironmentFault(f"render must return at most {MAX_PIXELS:,} pixels, got {shape}")
    # Of its requirements only PettingZoo's games need it.
    import pygame

    file = io.BytesIO()
    # pygame's first axis is the horizontal one.
    pygame.image.save(pygame.surfarray.make_surface(frame.swapaxes(0, 1)), file, "frame.png")
    return Picture(png=base64.b64encode(file.getvalue()).decode())
