"""Help, refusals and signatures are those that were stored."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.goldens import front_door
from tests.goldens.front_door import STORED, leaves, parting


def test_what_users_read_is_what_was_stored() -> None:
    # In a process of its own: the width of its terminal is set.
    command = [sys.executable, "-m", "tests.goldens.front_door"]
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"


def test_a_changed_text_is_shown_as_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (STORED / "signatures.txt").read_text(encoding="utf8")
    line = "class arena.errors.ConfigError(ArenaError)"
    assert line in text
    changed = text.replace(line, line.replace("ArenaError", "Exception"))
    found = parting("signatures", changed)
    assert [one for one in found if one.startswith(("+class", "-class"))] == [
        f"-{line}",
        f"+{line.replace('ArenaError', 'Exception')}",
    ]
    assert parting("signatures", text) == []
    monkeypatch.setitem(front_door.TEXTS, "signatures", lambda: changed)
    with pytest.raises(SystemExit):
        front_door.main([])


def test_every_key_is_among_the_refusals() -> None:
    keys = set(leaves())
    assert {"pbt.share", "stop.duration_s", "populations.player.network.core"} <= keys
    refused = (STORED / "refusals.txt").read_text(encoding="utf8")
    assert all(f"\n{key}=" in f"\n{refused}" for key in keys)
    # A rule names the value that broke it once.
    assert not [line for line in refused.splitlines() if line.count(", got ") > 1]
