"""The picture of a league in the README, from a document of standings.

``arena league RUN --json | python -m docs.generate.picture > docs/_static/standings.svg``
"""

from __future__ import annotations

import io
import json
import re
import sys
from typing import Any

from rich import box
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.table import Table
from rich.text import Text

COLUMNS = ("player", "rating", "95%", "matches", "gen", "agent steps", "parent")
NUM_ROWS = 9

# Rich's own text asks for a font of another host, which a README must not.
FORMAT = re.sub(r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def draw(populations: dict[str, list[dict[str, Any]]]) -> str:
    """Return the standings of one population as SVG: its best players, and the last one."""
    ((name, lines),) = populations.items()
    table = Table(title=f"standings {name}", box=box.HEAVY_HEAD, title_justify="left")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in ("player", "parent") else "right")
    for line in [*lines[:NUM_ROWS], lines[-1]]:
        interval = f"{line['rating_low']:.0f}..{line['rating_high']:.0f}"
        table.add_row(
            *(line["player"], f"{line['rating']:.0f}", interval, f"{line['matches']:,}"),
            *(str(line["generation"]), f"{line['agent_steps']:,}", line["parent"] or "-"),
        )
    console = Console(record=True, width=96, file=io.StringIO(), force_terminal=True)
    console.print(Text("$ arena league runs/four", style="bold green"))
    console.print(table)
    svg = console.export_svg(title="arena league", code_format=FORMAT, unique_id="standings")
    return svg.replace("Fira Code", "DejaVu Sans Mono, Menlo, Consolas")


if __name__ == "__main__":
    sys.stdout.write(draw(json.load(sys.stdin)["populations"]))
