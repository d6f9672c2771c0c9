"""Exit codes of the commands."""

from __future__ import annotations


def exit_code(error: Exception) -> int:
    """Return the exit code for an error that a command let pass; 3 for an unexpected one."""
    # These are imported only after an error: the modules of commands import the standard library
    # alone at their top.
    from arena.errors import AddressInUse, CheckpointError, ConfigError
    from populations.errors import ResumeRefused, RunInUse, StorageError

    if isinstance(error, (ConfigError, ResumeRefused)):
        return 2
    if isinstance(error, (RunInUse, AddressInUse)):
        return 4
    # A plain error of the system about a file is the storage's, too.
    is_files = isinstance(error, OSError) and error.filename is not None
    if isinstance(error, (StorageError, CheckpointError)) or is_files:
        return 5
    # The run failed, or Arena did: the traceback tells them apart.
    return 3
