"""The place among the events, on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from populations.hooks.calls import Place, read_place, write_place


def test_what_is_written_is_read(tmp_path: Path) -> None:
    place = Place(after=7, done=("on_end: a:b", "on_event: x y"), dropped=3)
    write_place(tmp_path / "hooks.json", place)
    assert read_place(tmp_path / "hooks.json") == place
    assert [path.name for path in tmp_path.iterdir()] == ["hooks.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"after": "x", "done": [], "dropped": 0}'])
def test_what_is_no_place_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "hooks.json"
    assert read_place(path) is None
    path.write_text(text)
    assert read_place(path) is None
