"""Sphinx directive ``{generated} NAME``: a page, or a part of one, made from the code.

Nothing is written into the source tree: the text is parsed where the directive stands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from docutils.nodes import Node
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata

from docs.generate import alerts, commands, configuration, events, journal, metrics, python_api

PAGES: Mapping[str, Callable[[], str]] = {
    "alerts": alerts.page,
    "commands": commands.page,
    "configuration": configuration.page,
    "events": events.page,
    "journal": journal.page,
    "metrics": metrics.page,
    "python_api": python_api.page,
}


class Generated(SphinxDirective):  # type: ignore[misc]  # not installed by make setup
    """Directive that is replaced by what the code says."""

    required_arguments = 1

    def run(self) -> list[Node]:
        """Return the nodes of the text."""
        # The page depends on code, not only on its source file, so Sphinx must always rebuild it.
        self.env.note_reread()
        text = PAGES[self.arguments[0]]()
        return list(self.parse_text_to_nodes(text, allow_section_headings=True))


def setup(app: Sphinx) -> ExtensionMetadata:
    """Make the directive known to Sphinx."""
    app.add_directive("generated", Generated)
    return {"parallel_read_safe": True}
