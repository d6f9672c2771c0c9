"""`arena presets`: the configurations that come with Arena."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import takewhile
from typing import Annotated

import typer

from populations.views.parts import Column, Table

from .show.text import print_framed
from .terminal.options import AsJson
from .terminal.output import print_json


def presets(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Preset to print. The preset default has every key."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the presets that arena launch takes, or print one: a file to start from.

    `arena presets default` explains every key, with its default.
    """
    from populations.preset_files import preset_names, preset_text

    if name is not None:
        # The file is printed with its comments, because they explain the keys.
        text = preset_text(name).decode()
        if as_json:
            print_json({"name": name, "text": text})
        else:
            sys.stdout.write(text)
        return
    # The description is the preset's first comment, so that there is no second list to update.
    rows = [{"name": one, "about": _about(preset_text(one).decode())} for one in preset_names()]
    if as_json:
        print_json({"presets": rows})
        return
    table = Table((Column("name", "word"), Column("about", "word")), rows)
    print_framed(table, box=None, show_header=False, padding=(0, 2, 0, 0))


def _about(text: str) -> str:
    """Return the first sentence of the comment at a preset's top."""
    comment = " ".join(_comment(text))
    # A full stop without a following blank is part of a name or a number.
    sentence, stop, _ = comment.partition(". ")
    return sentence.removesuffix(".") + "." if stop or comment else ""


def _comment(text: str) -> Iterator[str]:
    for line in takewhile(lambda line: line.startswith("#"), text.splitlines()):
        yield line.removeprefix("#").strip()
