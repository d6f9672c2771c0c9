from __future__ import annotations

import contextlib
import importlib.metadata
import io
import json
from pathlib import Path
from typing import Any

import pytest


def export(run: Path, directory: Path, *arguments: object) -> dict[str, Any]:
    """Export a run by the command for tests that share it; give what it says."""
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="arena")
    output, given = io.StringIO(), ("export", run, "--to", directory, *arguments, "--json")
    with contextlib.redirect_stdout(output), pytest.raises(SystemExit) as ended:
        script.load()([*map(str, given)])
    assert not ended.value.code
    document: dict[str, Any] = json.loads(output.getvalue())
    return document
