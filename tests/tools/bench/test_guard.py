from __future__ import annotations

import json
from pathlib import Path

import pytest

from arena.codec import plain
from arena.errors import ConfigError
from populations.errors import StorageError
from tools.bench.guard import Table, falls, load_table, noise_of, save_table
from tools.bench.measure import Measurement

SETTINGS: dict[str, object] = {"environment": "classic/rps-v2", "num_envs": 4}


def measured(
    name: str, low: float, ratio: float, high: float, *, bound_name: str = "bound"
) -> Measurement:
    return Measurement(
        name=name,
        value=10.0,
        unit="rows/s",
        bound_name=bound_name,
        bound_value=20.0,
        ratio=ratio,
        ratio_low=low,
        ratio_high=high,
        rounds=5,
    )


def table(*measurements: Measurement, settings: dict[str, object] | None = None) -> Table:
    return Table(
        machine={"cpu": "a"},
        settings=SETTINGS if settings is None else settings,
        measurements=measurements,
        stages={"learner/self_play": {"update": 1.0}},
    )


def test_a_ratio_has_fallen_if_its_spreads_do_not_explain_it() -> None:
    before = table(
        measured("steady", 0.7, 0.8, 0.9),
        measured("noisy", 0.5, 0.8, 0.9),
        measured("slower", 0.7, 0.8, 0.9),
        measured("faster", 0.7, 0.8, 0.9),
    )
    now = table(
        measured("steady", 0.69, 0.79, 0.9),
        measured("noisy", 0.4, 0.6, 0.7),
        measured("slower", 0.5, 0.6, 0.65),
        measured("faster", 0.9, 1.0, 1.1),
    )
    assert falls(before, now) == [(before.measurements[2], now.measurements[2])]
    # The ratio fell by 0.2; 0.1 below the old median and 0.05 above the new one are noise.
    assert noise_of(before.measurements[2], now.measurements[2]) == pytest.approx(0.15)


def test_only_ratios_to_the_same_bound_are_compared() -> None:
    before = table(measured("run", 0.7, 0.8, 0.9, bound_name="2 loops"), measured("x", 1, 1, 1))
    now = table(measured("run", 0.1, 0.1, 0.1, bound_name="4 loops"), measured("x", 1, 1, 1))
    assert falls(before, now) == []


def test_tables_without_a_common_ratio_cannot_be_compared() -> None:
    with pytest.raises(ConfigError, match="none of these ratios, only a to bound"):
        falls(table(measured("a", 1, 1, 1)), table(measured("b", 1, 1, 1)))


def test_tables_of_other_settings_cannot_be_compared() -> None:
    one = measured("a", 1, 1, 1)
    other = table(one, settings=SETTINGS | {"num_envs": 8})
    with pytest.raises(ConfigError, match="num_envs is 4 in the stored table and 8 now"):
        falls(table(one), other)


def test_a_stored_table_is_read_again(tmp_path: Path) -> None:
    saved = table(measured("a", 0.1, 0.2, 0.3))
    save_table(saved, tmp_path / "table.json")
    assert json.loads((tmp_path / "table.json").read_text())["schema"] == 1
    loaded = load_table(tmp_path / "table.json")
    assert loaded == saved


def test_the_packaged_table_is_one() -> None:
    names = {measurement.name for measurement in load_table(None).measurements}
    assert {"environment", "update/float32", "learner/self_play"} <= names


def stored(changes: dict[str, object]) -> str:
    """A table whose only measurement has these changes."""
    document = plain(table(measured("a", 1, 1, 1)))
    (measurement,) = document["measurements"]
    return json.dumps({**document, "measurements": [{**measurement, **changes}]})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "no table"),
        ("[]", "must be a map"),
        ('{"schema": 2}', "schema"),
        ('{"schema": 1, "machine": {}, "settings": {}, "stages": {}}', "measurements"),
        (stored({"extra": 1}), "no others and all of them"),
        (stored({"ratio": "high"}), "ratio"),
        (stored({"rounds": True}), "rounds"),
    ],
)
def test_anything_else_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "table.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=complaint):
        load_table(path)


def test_a_table_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        load_table(tmp_path / "none.json")


def test_a_disk_that_refuses_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot write"):
        save_table(table(measured("a", 1, 1, 1)), tmp_path / "nowhere" / "table.json")
