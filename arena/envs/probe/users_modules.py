"""Modules of users that a process has imported: all that a run names, and digests of their source.

Used in the short-lived child of `arena.envs.inspect`. Torch-free, as far as users' modules are.

Tests: `tests/arena/envs/probe/test_users_modules.py`.
"""

from __future__ import annotations

import hashlib
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from arena.errors import ConfigError
from arena.files import read_regular
from arena.resolve import resolve
from arena.types import Digest, canonical_digest
from arena.users_code import owner_of

MAX_MODULE_BYTES = 1 << 26
"""Most bytes of a module's file that is compared; it may be a compiled one."""


def import_all(references: Mapping[str, str], *, launch_directory: str) -> None:
    """Import all objects that a configuration names.

    Args:
        references: ``package.module:Name`` by the key that names it.
        launch_directory: Directory to put first on ``sys.path``.

    Raises:
        ConfigError: Names each key whose object is gone or cannot be imported.
    """
    faults = []
    for key, reference in references.items():
        try:
            resolve(reference, launch_directory=launch_directory)
        except ConfigError as error:
            faults.append(f"{key}: {error}")
    if faults:
        raise ConfigError("; ".join(faults))


def module_digests() -> dict[str, Digest]:
    """Return a digest of the source of each package or single module of users' that is imported.

    Users' are those outside of installed packages, of Python and of Arena. A digest covers the
    imported modules of a package, not its other files.
    """
    files: dict[str, dict[str, Digest]] = defaultdict(dict)
    # A copy: an attribute of a lazy module may import another one.
    for name, module in list(sys.modules.items()):
        # Not by getattr, for which a user's module may have code of its own.
        path = vars(module).get("__file__") if isinstance(module, ModuleType) else None
        # The child itself is Arena's; multiprocessing gives it a second name.
        is_own = module is sys.modules["__main__"]
        if isinstance(path, str) and not is_own and owner_of(name, path) == "user":
            files[name.partition(".")[0]][name] = _digest(Path(path))
    return {name: canonical_digest(files[name]) for name in sorted(files)}


def _digest(path: Path) -> Digest:
    try:
        return Digest(hashlib.sha256(read_regular(path, limit_bytes=MAX_MODULE_BYTES)).hexdigest())
    # A module of an archive, or one whose file is gone by now or is none, has no source to compare.
    except OSError:
        return Digest("")
