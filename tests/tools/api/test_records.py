from __future__ import annotations

import sys

import numpy as np
import pytest

import arena
from tools.api.runs import Records, records_of


def test_records_are_a_list_of_copies() -> None:
    rows: list[dict[str, object]] = [
        {"player": "a", "rating": 1.0},
        {"player": "b", "rating": None},
    ]
    records = records_of(rows)
    assert records == rows
    records[0]["rating"] = 2.0
    assert rows[0]["rating"] == 1.0


def test_they_become_a_table() -> None:
    table = arena.Records(
        [{"player": "a", "rating": 1.5}, {"player": "b", "seats": [1]}]
    ).to_pandas()
    assert table.columns.tolist() == ["player", "rating", "seats"]
    assert table["player"].tolist() == ["a", "b"]
    assert table["rating"][0] == 1.5
    assert np.isnan(table["rating"][1])
    assert table["seats"][1] == [1]


def test_without_pandas_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(arena.ConfigError, match="pip install pandas"):
        Records([{"a": 1}]).to_pandas()
