"""A process in a copy of the product that runs tests in forks of itself.

Large packages are imported once, so a run costs what the product and its tests do. Each line of
the input is a request: ``args`` of pytest, ``environ``, and ``output``, a file. The answer is two
lines: the fork's process id when it begins, and its exit code when it ends.
"""

from __future__ import annotations

import importlib
import json
import os
import sys

import pytest

# Plugins of pytest are left out, because pytest must import them itself.
LARGE = ("numpy", "torch", "pettingzoo", "pydantic", "msgpack", "zmq", "safetensors.torch", "yaml")


def main() -> None:
    """Answer requests until the input ends."""
    for name in LARGE:
        importlib.import_module(name)
    for line in sys.stdin:
        request = json.loads(line)
        fork = os.fork()
        if fork == 0:
            os.setsid()
            nothing = os.open(os.devnull, os.O_RDONLY)
            output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for source, target in ((nothing, 0), (output, 1), (output, 2)):
                os.dup2(source, target)
            os.environ.update(request["environ"])
            os._exit(pytest.main(request["args"]))
        sys.stdout.write(f"{fork}\n")
        sys.stdout.flush()
        _, status = os.waitpid(fork, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
