from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

from tests.support import exit_code


def export(run: Path, directory: Path, *arguments: object) -> dict[str, Any]:
    """Export a run by the command for tests that share it; give what it says."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        assert exit_code("export", run, "--to", directory, *arguments, "--json") == 0
    document: dict[str, Any] = json.loads(output.getvalue())
    return document
