"""The regression guard: a stored table of ratios, and which of them fell by more than noise.

A ratio has fallen if all rounds of now are below all rounds of then. With five rounds on each side
that happens by chance in one of 252 comparisons of equal speeds: the exact rank-sum test, one side.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path

from arena.errors import ConfigError
from populations.errors import StorageError

from ..terminal.output import SCHEMA, document_text
from .measure import Measurement

BASELINE = "baseline.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Findings of one ``arena bench``: the document of ``--json``, without its schema.

    Attributes:
        machine: Facts about the machine.
        settings: Facts about what was measured.
        measurements: Measurements, in the order they were made.
        stages: Share of each stage in the time, by whole-learner measurement.
    """

    machine: Mapping[str, object]
    settings: Mapping[str, object]
    measurements: Sequence[Measurement]
    stages: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fall:
    """A ratio that is lower than it was, by more than both spreads together.

    Attributes:
        name: Name of the measurement.
        before: Stored.
        now: Measured.
    """

    name: str
    before: Measurement
    now: Measurement

    @property
    def fall(self) -> float:
        """Fall of the median."""
        return self.before.ratio - self.now.ratio

    @property
    def noise(self) -> float:
        """Fall that the spreads of both would explain."""
        # fall > noise  <=>  before.ratio_low > now.ratio_high
        return (self.before.ratio - self.before.ratio_low) + (self.now.ratio_high - self.now.ratio)

    def as_json(self) -> dict[str, object]:
        """Return plain data."""
        return {
            "name": self.name,
            "before": self.before.ratio,
            "now": self.now.ratio,
            "fall": self.fall,
            "noise": self.noise,
        }


def falls(before: Table, now: Table) -> list[Fall]:
    """Return the ratios that fell by more than their noise, of those that both tables have.

    Raises:
        ConfigError: If the tables are of different settings or have no ratio in common.
    """
    # The union: a setting that one table lacks is another setting, too.
    for key in sorted({*before.settings, *now.settings}):
        stored, found = before.settings.get(key), now.settings.get(key)
        if stored != found:
            raise ConfigError(
                f"ratios can be compared only for equal settings: {key} is {stored!r} in the "
                f"stored table and {found!r} now"
            )
    # By bound, too: a ratio to float32 products says nothing about one to bfloat16 products.
    known = {(m.name, m.bound_name): m for m in before.measurements}
    pairs = [
        Fall(name=m.name, before=known[m.name, m.bound_name], now=m)
        for m in now.measurements
        if (m.name, m.bound_name) in known
    ]
    if not pairs:
        names = ", ".join(f"{name} to {bound}" for name, bound in known)
        raise ConfigError(f"the stored table has none of these ratios, only {names or 'nothing'}")
    return [pair for pair in pairs if pair.fall > pair.noise]


def save_table(table: Table, path: Path) -> None:
    """Write a table, as ``--json`` prints it.

    Raises:
        StorageError: If the disk refuses.
    """
    try:
        path.write_text(f"{document_text(asdict(table), indent=2)}\n", encoding="utf8")
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}") from error


def load_table(path: Path | None) -> Table:
    """Read a table.

    Args:
        path: None: the one that comes with this package.

    Raises:
        ConfigError: If there is none, or it is no table of this release.
    """
    # A resource, because an installed package need not lie in a directory.
    source = resources.files(__package__) / BASELINE if path is None else path
    try:
        return _parse(json.loads(source.read_text(encoding="utf8")))
    except OSError as error:
        raise ConfigError(f"cannot read {source}: {error.strerror}") from error
    # JSON's and Unicode's errors are ValueErrors, as are those of `_parse`.
    except ValueError as error:
        raise ConfigError(f"{source} is no table of arena bench: {error}") from error


def _parse(document: object) -> Table:
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ValueError(f"schema must be {SCHEMA}")
    kinds = {"machine": dict, "settings": dict, "measurements": list, "stages": dict}
    for key, kind in kinds.items():
        if not isinstance(document.get(key), kind):
            raise ValueError(f"{key} must be there, and a {kind.__name__}")
    return Table(
        machine=document["machine"],
        settings=document["settings"],
        measurements=[Measurement.from_json(each) for each in document["measurements"]],
        stages=document["stages"],
    )
