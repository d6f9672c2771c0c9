"""Elements of SVG as text: escaped, without styles and scripts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from html import escape
from xml.etree.ElementTree import ParseError, fromstring

SPACE = "{http://www.w3.org/2000/svg}"
SHAPES = ("path", "rect", "circle", "ellipse", "line", "polyline", "polygon", "text", "tspan")
PART = re.compile(
    r"<(g|text)\b[^>]*(?<!/)>[^<]*(?:<(?!/?(?:g|text)\b)[^<]*)*</\1\s*>",
)
"""Group or text, with neither in it."""

ELEMENTS = frozenset(("svg", "g", "title", "desc", *SHAPES))


def tag(name: str, content: str = "", **attributes: object) -> str:
    """Return an element: ``stroke_width`` is ``stroke-width``, ``class_`` is ``class``.

    Args:
        name: Its name.
        content: Elements and escaped text in it.
        attributes: Attributes, which are escaped here; numbers are rounded to two digits.
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_value(value))}"'
        for key, value in attributes.items()
    )
    return f"<{name}{given}>{content}</{name}>"


def printable(text: str, *, width: int) -> str:
    """Return one line of a text of anybody: no control characters, cut off at a width."""
    # Neither XML nor a terminal takes them, and some turn the direction of text.
    line = "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)
    return line if len(line) <= width else f"{line[: width - 3]}..."


def check_svg(text: str) -> None:
    """Refuse an SVG that does more than show shapes and text.

    Raises:
        ValueError: If it is none, or has an element or an attribute that is not known to be safe.
    """
    # No declarations, and so no entities.
    if "<!" in text or "<?" in text:
        raise ValueError("an SVG must have no declarations")
    try:
        root = fromstring(text)
    except ParseError as error:
        raise ValueError(f"an SVG must be XML: {error}") from None
    for element in root.iter():
        name = element.tag.removeprefix(SPACE)
        if name not in ELEMENTS:
            raise ValueError(f"an SVG must be shapes and text, got the element {name!r:.50}")
        for key, value in element.attrib.items():
            if key.startswith("on") or key in ("style", "href") or "}" in key or "url(" in value:
                raise ValueError(f"an SVG must have no styles, links and scripts, got {key!r:.50}")


def shared(pictures: Sequence[str]) -> list[str]:
    """Return the SVGs of one page, of which each group and text that comes again is drawn once.

    The first one defines them, all show them by ``use``: of a board that is shown after each move
    most stays as it was.

    Args:
        pictures: SVGs that `check_svg` has let pass; empty ones stay so.
    """
    # No XML has this character.
    page, names = "\0".join(pictures), dict[str, str]()

    def used(found: re.Match[str]) -> str:
        name = names.get(found[0])
        return f'<use href="#{name}"/>' if name else found[0]

    while again := [
        part
        for part, number in Counter(one[0] for one in PART.finditer(page)).items()
        if number > 1
    ]:
        names |= {part: f"d{at}" for at, part in enumerate(again, len(names))}
        page = PART.sub(used, page)
    if not names:
        return list(pictures)
    # In a group of its own, as it may have a name already.
    defined = "".join(tag("g", part, id=name) for part, name in names.items())
    head, closing, rest = page.partition("</svg")
    return f"{head}{tag('defs', defined)}{closing}{rest}".split("\0")


def _value(value: object) -> str:
    # No -0 and no 3.0000000000000004: equal pictures have equal bytes.
    return f"{round(value, 2) + 0.0:g}" if isinstance(value, float) else str(value)
