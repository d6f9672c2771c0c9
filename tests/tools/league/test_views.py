"""Views of `arena league`: each has a document, rows, and readable cells."""

from __future__ import annotations

import pytest

from populations.views.views import VIEWS
from tools.league.tables import _csv_cell


def test_rows_of_a_diff_are_one_for_each_number_of_both_runs() -> None:
    def entry(key: str, first: object, second: object, **labels: str) -> dict[str, object]:
        return {**labels, "key": key, "first": first, "second": second}

    of = {"population": "player"}
    document = {
        "figures": [entry("agent_steps", 1, 2)],
        "versions": {"equal": 3, "different": [entry("torch", "2", None)]},
        "configuration": {"equal": 9, "different": [entry("a.b", None, {"low": 1, "high": {}})]},
        "evolution": [],
        "champions": [],
        "standings": [entry("1", {"player": "p0", "rating": 5.0}, None, **of)],
        "opponents": [],
        "alerts": [],
    }
    blank = {"population": None}
    assert VIEWS["diff"].rows(document) == [
        {"section": "figures", **blank, **entry("agent_steps", 1, 2)},
        {"section": "versions", **blank, **entry("torch", "2", None)},
        {"section": "configuration", **blank, **entry("a.b.low", None, 1)},
        {"section": "configuration", **blank, **entry("a.b.high", None, {})},
        {"section": "standings", **of, **entry("1.player", "p0", None)},
        {"section": "standings", **of, **entry("1.rating", 5.0, None)},
    ]


@pytest.mark.parametrize(
    ("cell", "written"),
    [("=1+1", "'=1+1"), ("a", "a"), (-1.0, -1.0), ("a\x1b[31m", "a\\x1b[31m"), ("a\nb", "a\nb")],
)
def test_no_cell_is_a_formula(cell: object, written: object) -> None:
    assert _csv_cell(cell) == written
