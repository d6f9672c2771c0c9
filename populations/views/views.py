"""All views of a league by name.

To add a view, add an entry to ``VIEWS`` of its module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from populations.views import differences, league, log, players, run, training
from populations.views.view import View

if TYPE_CHECKING:
    from populations.views.questions.inspection import Inspection

VIEWS: dict[str, View] = {
    name: view
    for module in (league, training, log, run, players, differences)
    for name, view in module.VIEWS.items()
}
"""All views by name, in the order in which messages and pages list them."""


def document(
    run: Inspection, view: str, population: str | None = None, **options: object
) -> dict[str, Any]:
    """Return the document of a view.

    Args:
        run: Run to read.
        view: Name of the view.
        population: Population to which the document is restricted; None for all.
        **options: Options of the view's document.
    """
    return {"run": run.tables.run.run, **VIEWS[view].document(run, population, **options)}
