"""Arena from Python: launch a run, look at one, load a player, let players meet.

::

    import arena

    run = arena.launch("connect_four", run_dir="runs/x", overrides={"stop.duration_s": 60})
    run.standings()                                      # records; .to_pandas() where pandas is
    player = arena.load("runs/x:player/p003")            # or any other PLAYER of the commands
    player.act(observation, action_mask)                 # one observation or a batch
    arena.evaluate(["runs/x", "bot:random"], matches=200)

The public API is ``__all__``; beside it, for code of one's own, the Protocols of `arena.core`,
`arena.envs.base`, `arena.envs.batched.game` and `arena.metrics.sink`, the values of `arena.types`
and `arena.environment_spec`, and the exceptions of `arena.errors`. Everything else may change
without notice.

As a package, this is the playing and learning half of Arena, which knows no league. The names of
``__all__`` are imported when they are first used, so ``import arena`` imports next to nothing. The
home of most is above this package: the one exception to the rule that imports point one way
(`tests/test_imports.py`).
"""

from __future__ import annotations

import importlib
import os

__version__ = "0.1.0"

# The module is in tools/, under the name by which it is installed.
_API = "populations.commands.api"
_HOMES = {
    "launch": f"{_API}.launch",
    "open": f"{_API}.runs",
    "load": f"{_API}.load",
    "evaluate": f"{_API}.evaluate",
    "LaunchedRun": f"{_API}.launch",
    "Run": f"{_API}.runs",
    "Player": f"{_API}.player",
    "Records": f"{_API}.runs",
    "ArenaError": "arena.errors",
    "ConfigError": "arena.errors",
    "NoValue": "arena.errors",
    "RunFailed": "populations.errors",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        found: object = getattr(importlib.import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if error.name != "populations.commands":
            raise
        raise ImportError(
            f"arena was imported from the repository in {os.path.dirname(__path__[0])}, where a "
            "part of it has another name: start Python in another directory, or install it there "
            "with pip install --editable ."
        ) from error
    # Caching the name makes the next use bypass this function.
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
