"""Exit codes by kind of error, as interface.md has them."""

from __future__ import annotations

import pytest

from arena.errors import CheckpointMissing, ConfigError
from populations.errors import ResumeRefused, RunFailed, RunInUse, StorageError
from tools.terminal.exit_codes import exit_code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("wrong"), 2),
        (ResumeRefused("another seed"), 2),
        (RunFailed("no learner"), 3),
        (ZeroDivisionError(), 3),
        (RunInUse("run", pid=1), 4),
        (StorageError("full"), 5),
        (CheckpointMissing("gone"), 5),
    ],
)
def test_errors_have_their_code(error: Exception, code: int) -> None:
    assert exit_code(error) == code
