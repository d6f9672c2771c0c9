"""HTML of pages, from templates that escape every text.

Tests: `tests/tools/web/test_pages.py`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import jinja2

from .content import Content

HERE = Path(__file__).parent
SCRIPTS = ("charts.js", "drawings.js", "page.js")
PLOTLY = "plotly.min.js"

# Neither inline code nor eval: a label that escaped the escaping could do nothing. The hash is
# that of nothing: plotly adds an empty style sheet, and fills it by the document's own interface.
EMPTY = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
CONFINED = (
    f"default-src 'none'; script-src 'self'; style-src 'self' {EMPTY}; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'"
)
"""Policy of a page's content; files of an export name it in themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Surroundings of a page's content.

    Attributes:
        root: Way to the folder of all runs, such as ``../``.
        run: Name of the run, for people; empty for the list of runs.
        state: State of the run.
        page: Name of the page.
        navigation: Titles and addresses of the run's pages.
        poll_s: Seconds between two looks of a visible page; 0: none.
        is_static: Whether the page is a file of an export.
        data: Addresses of the page's documents by their names.
    """

    root: str
    page: str
    run: str = ""
    state: str = ""
    navigation: Mapping[str, str]
    poll_s: float = 0.0
    is_static: bool = False
    data: Mapping[str, str] = field(default_factory=dict)


@cache
def templates() -> jinja2.Environment:
    """Return the templates' environment."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def static_files() -> dict[str, bytes]:
    """Return the files that pages need, by name: the only files that a server sends."""
    found = {path.name: path.read_bytes() for path in sorted((HERE / "static").iterdir())}
    return {**found, PLOTLY: plotly_script()}


def plotly_script() -> bytes:
    """Return plotly's script, as its Python package brings it."""
    from importlib.resources import files

    # Not plotly.offline.get_plotlyjs, whose import takes a second and numpy.
    return files("plotly").joinpath("package_data", PLOTLY).read_bytes()


@cache
def placeholders() -> tuple[str, ...]:
    """Return the ids of the style sheets that plotly adds unless an element has them."""
    found = re.findall(rb'getElementById\("([0-9a-f]{64})"\)', plotly_script())
    return tuple(dict.fromkeys(one.decode() for one in found))


@cache
def static_version() -> str:
    """Return a digest of the files, so that browsers keep one version each."""
    digest = hashlib.sha256()
    for name, content in static_files().items():
        digest.update(name.encode() + content)
    return digest.hexdigest()[:12]


def render(content: Content, frame: Frame) -> str:
    """Return a page."""
    # Files have no version: they are never replaced by others.
    version = "" if frame.is_static else f"?v={static_version()}"
    return (
        templates()
        .get_template("page.html")
        .render(
            content=content,
            frame=frame,
            scripts=(PLOTLY, *SCRIPTS),
            placeholders=placeholders(),
            version=version,
            policy=CONFINED if frame.is_static else "",
        )
    )
