"""HTML of pages, from templates that escape every text.

Tests: `tests/tools/web/test_pages.py`.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import jinja2

from populations.views.charts.parts import COLOURS

from ..show.html import Block
from .pages.log import Filter

HERE = Path(__file__).parent
SCRIPTS = ("vega.min.js", "charts.js", "page.js", "replay.js")

# The policy allows neither inline code nor eval, so a label that was not escaped stays harmless.
CONFINED = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'"
)
"""Policy of a page's content; files of an export name it in themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Title and blocks of a page.

    Attributes:
        title: Its title.
        blocks: Its blocks.
        filters: Fields of its form.
        query: Values of these fields.
        parts: Addresses of the page's parts by their titles, if it is divided by a subject.
        part: Title of this part.
    """

    title: str
    blocks: Sequence[Block]
    filters: Sequence[Filter] = ()
    query: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, str] = field(default_factory=dict)
    part: str = ""


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
def template() -> jinja2.Template:
    """Return the template of all pages."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html")


@cache
def static_files() -> dict[str, bytes]:
    """Return the files that pages need, by name: the only files that a server sends."""
    files = {path.name: path.read_bytes() for path in sorted((HERE / "static").iterdir())}
    return {**files, "page.css": _colours().encode() + files["page.css"]}


def _colours() -> str:
    """Return the palette as CSS variables, with values for the light and the dark theme."""
    light, dark = (
        "".join(f" --colour-{name}: {getattr(one, look)};" for name, one in COLOURS.items())
        for look in ("light", "dark")
    )
    return f":root {{{light} }}\n@media (prefers-color-scheme: dark) {{ :root {{{dark} }} }}\n"


@cache
def static_version() -> str:
    """Return a digest of the files, so that browsers keep one version each."""
    digest = hashlib.sha256()
    for name, content in static_files().items():
        digest.update(name.encode() + content)
    return digest.hexdigest()[:12]


def render_alone(content: Content) -> str:
    """Return a page in one file, with what it needs of styles and scripts in it."""
    files = static_files()
    style, script = (files[name].decode() for name in ("page.css", "replay.js"))
    hashes = [
        base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()
        for part in (style, script)
    ]
    return template().render(
        content=content,
        frame=Frame(root="", page="", navigation={}, is_static=True),
        scripts=(),
        version="",
        inline={"style": style, "script": script},
        # Only exactly these inline texts may run, whatever a name contains.
        policy="default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'",
    )


def render(content: Content, frame: Frame, *, scripts: Sequence[str] = SCRIPTS) -> str:
    """Return a page."""
    # Exported files have no version, because they are never replaced.
    version = "" if frame.is_static else f"?v={static_version()}"
    return template().render(
        content=content,
        frame=frame,
        scripts=scripts,
        version=version,
        inline=None,
        policy=CONFINED if frame.is_static else "",
    )
