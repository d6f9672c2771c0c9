"""Exit codes of the commands."""

from __future__ import annotations


def exit_code(error: Exception) -> int:
    """Return the exit code for an error that a command let pass; 3 for an unexpected one."""
    # These imports happen only after an error: modules of commands import only the standard library
    # at their top.
    from arena.errors import AddressInUse, CheckpointError, ConfigError
    from populations.errors import ResumeRefused, RunInUse, StorageError

    if isinstance(error, (ConfigError, ResumeRefused)):
        return 2
    if isinstance(error, (RunInUse, AddressInUse)):
        return 4
    # An OSError about a file counts as a storage error, too.
    is_files = isinstance(error, OSError) and error.filename is not None
    if isinstance(error, (StorageError, CheckpointError)) or is_files:
        return 5
    # Both a failed run and a bug of Arena give 3; only a bug has a traceback.
    return 3
