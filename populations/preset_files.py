"""Texts of Arena's presets and of users' configuration files.

Tests: `tests/tools/test_main.py`, `tests/populations/config/test_run_config.py`.
"""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

from arena.errors import ConfigError
from arena.resolve import in_file
from arena.rules import nearest
from populations.yaml_documents import MAX_BYTES

# Presets are a package's data, so that they are found in an installed wheel, too.
PRESETS = "populations.presets"


def preset_names() -> list[str]:
    """Return the names of the presets."""
    entries = resources.files(PRESETS).iterdir()
    return sorted(Path(entry.name).stem for entry in entries if entry.name.endswith(".yaml"))


def preset_text(name: str) -> bytes:
    """Return the YAML of a preset.

    Raises:
        ConfigError: If no preset has that name.
    """
    try:
        names = preset_names()
    # Only an installation makes a package of configs/ (package-dir in pyproject.toml).
    except ModuleNotFoundError as error:
        raise ConfigError("the presets are not installed; run: pip install -e .") from error
    if name not in names:
        meant = _environment_hint(name) or nearest(name, names)
        raise ConfigError(
            f"there is no preset {name!r}{meant}; presets: {', '.join(names)}; "
            "a file's name must end in .yaml"
        )
    return (resources.files(PRESETS) / f"{name}.yaml").read_bytes()


def config_text(source: str | Path) -> bytes:
    """Return the YAML of a preset or a file, unchanged.

    Raises:
        ConfigError: If there is no such preset, or the file cannot be read.
    """
    path = Path(source)
    # A word without suffix and folder names a preset, even if there is a file of this name.
    is_path = isinstance(source, Path) or path.suffix in (".yaml", ".yml") or len(path.parts) > 1
    if not is_path:
        return preset_text(str(source))
    try:
        with path.open("rb") as file:
            # Read at most a byte more than is allowed: it shows that a file is too long, and
            # the end of a device would never come.
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        hint = _environment_hint(str(source))
        raise ConfigError(f"cannot read {source}: {error.strerror}{hint}") from error


def _environment_hint(name: str) -> str:
    """Return a hint for a name that looks like an environment's id; empty if it does not."""
    name = in_file(name) or name
    if not re.search(r"\w:\w|[-_]v\d+$", name):
        return ""
    return f"; `arena envs check {name} --write FILE.yaml` writes a configuration of an environment"
