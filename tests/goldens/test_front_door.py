"""What is stored is whole, and differences are shown; `make goldens` compares."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.goldens import commands, environments, front_door, hostile, outlets, store
from tests.goldens.front_door import STORED, leaves


def test_a_changed_text_is_shown_as_a_difference(capsys: pytest.CaptureFixture[str]) -> None:
    path = STORED / "signatures.txt"
    text = store.read(path)
    line = "class arena.errors.ConfigError(ArenaError)"
    assert line in text
    changed = text.replace(line, line.replace("ArenaError", "Exception"))
    found = store.parting(path, changed)
    assert [one for one in found if one.startswith(("+class", "-class"))] == [
        f"-{line}",
        f"+{line.replace('ArenaError', 'Exception')}",
    ]
    assert store.parting(path, text) == []
    with pytest.raises(SystemExit):
        store.main("", STORED, {path.name: lambda: changed}, [])
    assert f"\n-{line}" in capsys.readouterr().out


def test_what_is_stored_is_read_again_and_an_equal_one_keeps_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "golden" / "a.json.xz"
    store.write(path, '{"a": 1.0}')
    assert store.read(path) == '{"a": 1.0}'
    before = path.stat().st_mtime_ns
    store.write(path, '{"a": 1.0}')
    assert path.stat().st_mtime_ns == before
    assert store.parting(path, '{"a": 1.0000001}') == []
    assert store.parting(path, '{"a": 2.0}') == [".a: stored 1.0, found 2.0"]


@pytest.mark.parametrize("module", [commands, environments, front_door, hostile, outlets])
def test_every_file_is_stored_and_no_other(module: object) -> None:
    stored: Path = vars(module)["STORED"]
    assert {path.name for path in stored.iterdir()} == set(vars(module)["MAKERS"])


def test_every_key_is_among_the_refusals() -> None:
    keys = set(leaves())
    assert {"pbt.share", "stop.duration_s", "populations.player.network.core"} <= keys
    refused = (STORED / "refusals.txt").read_text(encoding="utf8")
    assert all(f"\n{key}=" in f"\n{refused}" for key in keys)
    # A rule names the wrong value only once.
    assert not [line for line in refused.splitlines() if line.count(", got ") > 1]


def test_every_environment_that_is_supported_is_among_the_findings() -> None:
    stored = json.loads(store.read(environments.STORED / environments.FINDINGS))
    found = {name.split()[0] for name in stored}
    assert found >= set(environments.supported())
    missing = {" ".join(case) for case, needs in environments.cases() if not needs} - set(stored)
    assert missing == set()
