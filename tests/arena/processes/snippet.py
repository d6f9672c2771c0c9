"""Child that runs the code of a test. Also the module that it runs."""

from __future__ import annotations

import sys
from typing import Any

from arena.processes.parent import Child


def started(code: str, *arguments: str, **how: Any) -> Child:
    return Child("tests.arena.processes.snippet", [code, *arguments], **how)


if __name__ == "__main__":
    exec(sys.argv.pop(1))
