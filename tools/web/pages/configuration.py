"""Page of what a run is made of: environment, seed, versions, and each key of its configuration.

Tests: `tests/tools/web/test_configuration.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from populations.views.parts import Column, Line, Pairs, Section, Table

from ...show.html import Block, Cell
from .page_request import PageRequest

if TYPE_CHECKING:
    from populations.views.questions.inspection import Inspection

LINE = "{environment}, seed {seed}, launched as {name}, {created:time} UTC: "

FACTS = ("environment", "seed", "name", "created", "init_from")
KEYS = (Column("key", "word"), Column("value", "exact"))


def configuration_document(run: Inspection) -> dict[str, object]:
    """Return what a run is made of; ``configuration`` is that of `run.yaml` without secrets."""
    from populations.config.resume import without_secrets

    file = run.run_file
    return {
        "run": file.run,
        "environment": file.spec.id,
        "seed": file.config.seed,
        "name": file.name,
        "created": file.created,
        "init_from": file.init_from,
        "versions": dict(file.versions),
        "configuration": without_secrets(file.config.model_dump(mode="json")),
    }


def made_of(asked: PageRequest) -> Iterator[Block]:
    """Yield the line about what the run is made of, which leads to all of it."""
    line = Line(LINE, asked.documents["configuration"])
    for block in asked.blocks([Section(above=[line])]):
        href = asked.links.page("configuration")
        yield replace(block, above=[[*block.above[0], Cell("configuration", href=href)]])


def configuration(asked: PageRequest) -> Iterator[Block]:
    """Yield what the run is made of, and each key of its configuration."""

    def make() -> Iterator[Section]:
        found = asked.documents["configuration"]
        shown = {**{key: found[key] for key in FACTS}, **found["versions"]}
        pairs = [
            (key.replace("_", " "), Line("{value}", {"value": one}))
            for key, one in shown.items()
            if one is not None
        ]
        yield Section(title=Line("Run"), body=Pairs(pairs))
        rows = [{"key": key, "value": one} for key, one in _leaves(found["configuration"])]
        yield Section(
            title=Line("Configuration"),
            about="Arguments of commands, logins and what is named like a secret are not shown.",
            body=Table(KEYS, rows),
        )

    yield from asked.part("Configuration", make)


def _leaves(value: object, key: str = "") -> Iterator[tuple[str, object]]:
    """Yield each setting by its dotted key."""
    if not isinstance(value, Mapping) or not value:
        yield key, value
        return
    for name, one in value.items():
        yield from _leaves(one, f"{key}.{name}" if key else name)
