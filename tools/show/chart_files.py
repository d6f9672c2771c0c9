"""Files of charts: PNG, SVG and PDF by vl-convert; equal documents give equal bytes.

Its fonts come with the library (Liberation Sans, SIL Open Font License), and nothing is loaded from
elsewhere.

Tests: `tests/tools/show/test_chart_files.py`.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from arena.errors import ConfigError
from arena.files import replacing
from populations.views.charts.figures import WIDE, Documents, Figure
from populations.views.charts.parts import CONFIG, Reader, Spec
from populations.views.parts import Room, Section
from populations.views.texts import one_line
from populations.views.views import VIEWS

from .values import line_text

MAX_TITLE = 60
"""Characters of the title of a chart."""

SUFFIXES = (".png", ".svg", ".pdf")
VEGA_LITE = "6.4"
"""Version of Vega-Lite, of those that vl-convert brings."""

FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
"""The first one comes with the library; the others, as wide, are for readers of an SVG."""
INCH = 96
"""Pixels of an inch, in SVG and CSS."""

COLUMN, PAGE = 3.4, 7.0
"""Inches of one column of a paper, and of two."""

PNG_PPI = 300

STYLE: dict[str, Any] = {
    "background": "white",
    "font": FONT,
    "axis": {"labelFontSize": 11, "titleFontSize": 11, "tickSize": 4},
    "axisQuantitative": {"gridColor": "#E8E8E8", "grid": True},
    "legend": {"labelFontSize": 11, "titleFontSize": 11, "symbolFillColor": "#444444"},
    "title": {"fontSize": 11, "color": "#444444"},
    "text": {"fontSize": 11},
}


def find_figure(view: str, file: Path) -> Figure:
    """Return the figure of a view, before anything is read.

    Raises:
        ConfigError: If the view has none, the file's suffix says no kind of file, or vl-convert is
            not installed.
    """
    figure = VIEWS[view].figure
    if figure is None:
        plotted = ", ".join(name for name, one in VIEWS.items() if one.figure)
        raise ConfigError(
            f"the view {view} has no plot: --plot draws one of {plotted}, which show "
            "numbers over time or between players"
        )
    check_plot_file(file)
    return figure


def check_plot_file(file: Path) -> None:
    """Refuse a file of which no plot can be made.

    Raises:
        ConfigError: If its suffix says no kind of file, or vl-convert is not installed.
    """
    if file.suffix.lower() not in SUFFIXES:
        raise ConfigError(
            f"--plot {file}: the suffix says the kind of file, one of {', '.join(SUFFIXES)}, "
            f"not {file.suffix or 'nothing'}"
        )
    try:
        importlib.import_module("vl_convert")
    except ModuleNotFoundError as error:
        raise ConfigError("--plot needs vl-convert: pip install vl-convert-python") from error


def write_figure(
    figure: Figure, documents: Documents, file: Path, *, populations: Sequence[str] = ()
) -> None:
    """Draw a figure into a file, which is replaced at once if it exists.

    Args:
        figure: Figure to draw.
        documents: Documents that it takes.
        file: File whose suffix is one of `SUFFIXES`.
        populations: Names of the run's populations.

    Raises:
        ConfigError: If there is nothing to draw yet, or the file cannot be written.
    """
    sections = figure.draw(documents, Reader(populations, width=WIDE))
    write_chart(composed(figure, sections, tuple(populations)), file)


def composed(
    figure: Figure, sections: Sequence[Section], populations: tuple[str, ...]
) -> dict[str, Any] | str:
    """Return one picture of the charts of sections, below and beside each other.

    Raises:
        ConfigError: If there are none.
    """
    room = Room(width=WIDE, populations=populations)
    drawn = [one for one in sections if one.chart is not None]
    if not drawn:
        reasons = [line_text(line, room) for one in sections for line in (*one.above, *one.below)]
        raise ConfigError(f"there is nothing to plot yet: {'; '.join(dict.fromkeys(reasons))}")
    if isinstance(drawn[0].chart, str):
        return drawn[0].chart
    parts = []
    for one in drawn:
        lines = [line_text(line, room) for line in (one.title, *one.below) if line is not None]
        chart = {key: value for key, value in cast("Spec", one.chart).items() if key != "config"}
        parts.append({**chart, "title": [one_line(line, max_chars=MAX_TITLE) for line in lines]})
    channels = ("color", "shape", "fill", "x", "y")
    scale = {one: "shared" if one == figure.shared else "independent" for one in channels}
    return {
        "concat": parts,
        "columns": figure.columns,
        "resolve": {"scale": scale},
        "config": CONFIG,
    }


def write_chart(chart: dict[str, Any] | str, file: Path) -> None:
    """Write a Vega-Lite specification or an SVG as a file. Call it on the main thread.

    Raises:
        ConfigError: If the file cannot be written.
    """
    import vl_convert

    svg = (
        chart
        if isinstance(chart, str)
        else vl_convert.vegalite_to_svg(
            chart, vl_version=VEGA_LITE, config=STYLE, allowed_base_urls=[]
        )
    )
    svg = _sized(_numbered(svg))
    kind = file.suffix.lower()
    if kind == ".png":
        content = vl_convert.svg_to_png(svg, scale=72 / INCH, ppi=PNG_PPI)
    elif kind == ".pdf":
        content = _sorted(vl_convert.svg_to_pdf(svg))
    else:
        content = svg.encode()
    try:
        with replacing(file) as new:
            new.write(content)
    except OSError as error:
        raise ConfigError(f"--plot {file} cannot be written: {error.strerror}") from error


def _numbered(svg: str) -> str:
    """Return a picture whose ids are counted from 0: Vega counts all that a process draws."""
    numbers: dict[str, int] = {}

    def renamed(found: re.Match[str]) -> str:
        return f"{found[1]}{numbers.setdefault(found[0], len(numbers))}"

    def tag(found: re.Match[str]) -> str:
        return re.sub(r'(?<=[#"])(clip|gradient_)\d+(?=[")])', renamed, found[0])

    # Only tags are changed, so that the texts between them stay as they are.
    return re.sub(r"<[^>]*>", tag, svg)


def _sorted(pdf: bytes) -> bytes:
    """Return a PDF whose lists of resources are sorted: the library writes them in any order."""
    entries = rb"(?: +/[A-Za-z]+\d+ \d+ 0 R\n){2,}"
    return re.sub(entries, lambda found: b"".join(sorted(found[0].splitlines(True))), pdf)


def _sized(svg: str) -> str:
    """Return a picture as wide as one or two columns of a paper."""
    beginning = re.search(r"<svg [^>]*>", svg)
    assert beginning is not None, "a picture begins with its element"
    box = re.search(r'viewBox="[-0-9.]+ [-0-9.]+ ([0-9.]+) ([0-9.]+)"', beginning[0])
    assert box is not None, "vega writes the box of what it has drawn"
    width, height = float(box[1]), float(box[2])
    inches = COLUMN if width < (COLUMN + PAGE) / 2.0 * INCH else PAGE
    tag = re.sub(r' (width|height)="[^"]*"', "", beginning[0])
    sizes = f'width="{72.0 * inches:g}pt" height="{72.0 * inches * height / width:.1f}pt"'
    tag = tag.replace("<svg ", f'<svg {sizes} font-family="{FONT}" ', 1)
    return svg.replace(beginning[0], tag, 1)
