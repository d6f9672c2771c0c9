"""Uses of the public API that type checkers accept, and some that they refuse.

``make check`` reads this file: an ignored line that is no error would be one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

import arena


def accepted(directory: Path, observation: object) -> None:
    run: arena.LaunchedRun = arena.launch(
        "tictactoe",
        run_dir=directory,
        overrides={"stop.duration_s": 60, "pbt": None},
        init_from={"player": "runs/x"},
        wait=False,
    )
    run.wait(timeout_s=3.0)
    run.stop()
    opened: arena.Run = arena.open(str(directory))
    records: arena.Records = opened.events(kind=["exploited", "explored"])
    first: dict[str, Any] = records[0]
    state: str = opened.status()["state"]
    player: arena.Player = arena.load(directory, seed=1)
    probabilities: npt.NDArray[np.float64] = player.probabilities(observation, agent="player_0")
    value: float | npt.NDArray[np.float32] = player.value(observation)
    module: torch.nn.Module = player.module()
    document = arena.evaluate([player.name, "bot:random"], matches=3)
    try:
        player.reset(seed=3)
    except (arena.NoValue, arena.ConfigError, arena.RunFailed) as error:
        known: arena.ArenaError = error
        raise known from None
    del first, state, probabilities, value, module, document


def refused(player: arena.Player) -> None:
    arena.launch("tictactoe", "runs/x")  # type: ignore[call-arg]
    arena.launch("tictactoe", overrides=3)  # type: ignore[arg-type]
    arena.open()  # type: ignore[call-arg]
    arena.open("runs/x").event()  # type: ignore[attr-defined]
    player.act(1, None, "player_0")  # type: ignore[call-arg]
    arena.lunch()  # type: ignore[attr-defined]
