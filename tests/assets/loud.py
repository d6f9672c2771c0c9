"""The rounds of `faulty.py`, in an environment that does more than play.

Found by id, ``loud:Loud``, with this directory as the launch directory.
"""

from __future__ import annotations

import atexit
import os
import threading
from typing import Any

from faulty import Rounds  # type: ignore[import-not-found]


class Loud(Rounds):  # type: ignore[misc]
    """The rounds. It prints in each way, and leaves behind what would keep its process for ever."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._actions: dict[str, Any] = {}
        threading.Thread(target=threading.Event().wait).start()
        atexit.register(threading.Event().wait)

    def action_space(self, agent: str) -> Any:
        return self._actions.setdefault(agent, super().action_space(agent))

    def reset(self, seed: int | None = None, options: object = None) -> Any:
        print("loading ... done")  # noqa: T201
        os.write(1, b"and from below\n")
        return super().reset(seed, options)
