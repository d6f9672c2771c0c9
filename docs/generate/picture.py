"""The picture of a league in the README: the standings as `arena league` shows them.

``arena league RUN --json | python -m docs.generate.picture > docs/_static/standings.svg``
"""

from __future__ import annotations

import io
import json
import re
import sys
from typing import Any

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.text import Text

from tools.league.documents import Opened
from tools.league.tables import Shown, rendered
from tools.terminal.screen import Screen

WIDTH = 96
NUM_ROWS = 9

# Rich's template loads a font from another host, which a README must not do.
FORMAT = re.sub(r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def draw(document: dict[str, Any]) -> str:
    """Return the best players of a document of standings as SVG."""
    # Rich chooses its characters by the encoding of the stream.
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf8")
    screen = Screen(stream, record=True, width=WIDTH, force_terminal=True)
    screen.print(Text(f"$ arena league runs/four --limit {NUM_ROWS}", style="bold green"))
    shown = Shown(name="standings", limit=NUM_ROWS)
    opened = Opened(document=document, populations=tuple(document["populations"]))
    for part in rendered(shown, opened, screen):
        screen.print(part)
    svg = screen.export_svg(title="arena league", code_format=FORMAT, unique_id="standings")
    return svg.replace("Fira Code", "DejaVu Sans Mono, Menlo, Consolas")


if __name__ == "__main__":
    sys.stdout.write(draw(json.load(sys.stdin)))
