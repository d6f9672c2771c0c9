from __future__ import annotations

from pathlib import Path

import pytest

from populations.launchers import local
from populations.launchers.local import LocalLauncher


class Spawned:
    """A process that was asked for."""

    pid = 1

    def kill_group(self) -> None:
        """There is nothing to end."""


@pytest.mark.parametrize(
    ("devices", "dealt"),
    [
        (("cuda:0", "cuda:1"), ["cuda:0", "cuda:1", "cuda:0", "cuda:1", "cuda:0", "cuda:1"]),
        (("auto",), ["auto", "auto", "auto", "auto", "auto", "auto"]),
        (("cpu",) * 9, ["cpu", "cpu", "cpu", "cpu", "cpu", "cpu"]),
    ],
)
def test_devices_are_dealt_to_the_slots_in_turn_and_stay_there(
    devices: tuple[str, ...], dealt: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[object] = []

    def spawn(*_: object, device: str, nice: int, **__: object) -> Spawned:
        given.append(device)
        assert nice == 3
        return Spawned()

    monkeypatch.setattr(local, "spawn_learner", spawn)
    launcher = LocalLauncher(
        setup_path=tmp_path / "setup.json",
        endpoint="ipc://x",
        logs=tmp_path,
        devices=devices,
        nice=3,
    )
    # The fourth and the first learner end, and others come in their places.
    for slot in (0, 1, 2, 3, 3, 0):
        launcher.start(slot, ())
    assert given == [dealt[slot] for slot in (0, 1, 2, 3, 3, 0)]
