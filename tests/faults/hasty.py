"""``python -m tests.faults.hasty ...``: the command `arena`, whose controller waits for little.

Waits are seconds for people and in a test they are most of the time. No configuration changes them.
"""

from __future__ import annotations

import importlib
import sys

from populations.controller.state.leases import Patience

WAITS = {
    "heartbeat_s": 0.2,
    "stall_s": 30.0,
    "backoff_s": (0.1, 1.0),
    "grace_s": 10.0,
    "storage_s": (0.2, 3.0),
}

if __name__ == "__main__":
    assert Patience.__init__.__kwdefaults__ is not None
    Patience.__init__.__kwdefaults__.update(WAITS)
    # The folder tools/ has this name once it is installed.
    main = importlib.import_module("populations.commands.main").main
    main(sys.argv[1:])
