"""The regression guard: a stored table of ratios, and which of them fell by more than noise.

A ratio has fallen if all rounds of now are below all rounds of then. With five rounds on each side
that happens by chance in one of 252 comparisons of equal speeds: the exact rank-sum test, one side.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Literal

from arena.codec import from_json, to_json
from arena.errors import ConfigError, DecodeError
from arena.types import Document, Finite
from populations.errors import StorageError

from .measure import Measurement

BASELINE = "baseline.json"


class Table(Document, frozen=True, kw_only=True):
    """Findings of one ``arena bench``: the document of ``--json``.

    Attributes:
        schema: Version of its form.
        machine: Facts about the machine.
        settings: Facts about what was measured.
        measurements: Measurements, in the order they were made.
        stages: Share of each stage in the time, by whole-learner measurement.
    """

    schema: Literal[1] = 1
    machine: dict[str, object]
    settings: dict[str, object]
    measurements: tuple[Measurement, ...]
    stages: dict[str, dict[str, Finite]]


def noise_of(before: Measurement, now: Measurement) -> float:
    """Return the fall of a ratio that the spreads of both measurements would explain."""
    return (before.ratio - before.ratio_low) + (now.ratio_high - now.ratio)


def falls(before: Table, now: Table) -> list[tuple[Measurement, Measurement]]:
    """Return the measurements whose ratios fell by more than their noise, of those that both tables
    have, as they were and as they are.

    Raises:
        ConfigError: If the tables are of different settings or have no ratio in common.
    """
    # The keys of both tables are compared: a setting that only one table has differs, too.
    for key in sorted({*before.settings, *now.settings}):
        stored, found = before.settings.get(key), now.settings.get(key)
        if stored != found:
            raise ConfigError(
                f"ratios can be compared only for equal settings: {key} is {stored!r} in the "
                f"stored table and {found!r} now"
            )
    # Measurements match by name and bound: ratios to float32 and to bfloat16 products differ.
    known = {(m.name, m.bound_name): m for m in before.measurements}
    pairs = [
        (known[m.name, m.bound_name], m)
        for m in now.measurements
        if (m.name, m.bound_name) in known
    ]
    if not pairs:
        names = ", ".join(f"{name} to {bound}" for name, bound in known)
        raise ConfigError(f"the stored table has none of these ratios, only {names or 'nothing'}")
    # was.ratio_low > found.ratio_high
    return [(was, m) for was, m in pairs if was.ratio - m.ratio > noise_of(was, m)]


def save_table(table: Table, path: Path) -> None:
    """Write a table, as ``--json`` prints it.

    Raises:
        StorageError: If the disk refuses.
    """
    try:
        path.write_text(f"{to_json(table, indent=2)}\n", encoding="utf8")
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}") from error


def load_table(path: Path | None) -> Table:
    """Read a table.

    Args:
        path: None: the one that comes with this package.

    Raises:
        ConfigError: If there is none, or it is no table of this release.
    """
    # The baseline is a package resource, because an installed package need not be a directory.
    source = resources.files(__package__) / BASELINE if path is None else path
    try:
        return from_json(source.read_bytes(), Table)
    except OSError as error:
        raise ConfigError(f"cannot read {source}: {error.strerror}") from error
    except DecodeError as error:
        raise ConfigError(f"{source} is no table of arena bench: {error}") from error
