"""Records: results as plain data, for notebooks as a table of pandas.

Tests: `tests/tools/api/test_records.py`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import Any

from arena.errors import ConfigError


class Records(list[dict[str, Any]]):
    """List of records: dictionaries of plain data with texts as keys, in the order of a view."""

    def to_pandas(self) -> Any:  # noqa: ANN401  (pandas need not be installed)
        """Return the records as a ``pandas.DataFrame``, one row each.

        A key that a record lacks is a missing value in its row. Nested values stay objects.

        Raises:
            ConfigError: If pandas is not installed.
        """
        try:
            # By name: pandas is no dependency of Arena's.
            pandas = importlib.import_module("pandas")
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"to_pandas needs the package pandas, which cannot be imported ({error}): "
                "pip install pandas"
            ) from error
        return pandas.DataFrame.from_records(list(self))


def records_of(rows: Iterable[Mapping[str, Any]]) -> Records:
    """Return copies of rows as records."""
    return Records(dict(row) for row in rows)
