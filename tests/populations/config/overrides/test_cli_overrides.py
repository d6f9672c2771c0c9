from __future__ import annotations

import pytest

from arena.errors import ConfigError
from populations.config.overrides import apply_overrides, parse_override


def test_a_value_is_read_as_yaml() -> None:
    assert parse_override("a.b=1e-4") == (("a", "b"), 0.0001)
    assert parse_override("a=") == (("a",), None)
    assert parse_override("a={x: [1]}") == (("a",), {"x": [1]})
    assert parse_override("a=b=c") == (("a",), "b=c")


@pytest.mark.parametrize("override", ["a", "=1", "a..b=1", ".a=1", "a.=1"])
def test_a_malformed_override_is_refused(override: str) -> None:
    with pytest.raises(ConfigError, match="must be KEY=VALUE") as error_info:
        parse_override(override)
    assert repr(override) in str(error_info.value)


def test_the_last_of_a_repeated_key_counts_and_levels_are_made() -> None:
    document = {"a": {"b": 1}, "n": None}
    overridden = apply_overrides(document, ["a.b=2", "a.b=3", "n.x=4", "new.deep.key=5"])
    assert overridden == {"a": {"b": 3}, "n": {"x": 4}, "new": {"deep": {"key": 5}}}
    assert document == {"a": {"b": 1}, "n": None}


def test_an_override_cannot_lead_into_a_value() -> None:
    with pytest.raises(ConfigError, match=r"seed\.x: seed is 1, which has no keys"):
        apply_overrides({"seed": 1}, ["seed.x=2"])
