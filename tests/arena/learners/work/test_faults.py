from __future__ import annotations

import pytest

from arena.errors import (
    ConfigError,
    DiskRefused,
    EnvironmentFault,
    EnvironmentNotMade,
    EnvWorkersLost,
    WireError,
)
from arena.learners.work.faults import AssignmentFault, fault_of
from arena.types import PolicyId

POLICY = PolicyId("player/p000")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (AssignmentFault("stopped", "x"), "stopped"),
        (EnvironmentNotMade("x"), "making"),
        (EnvironmentFault("x"), "environment"),
        (EnvWorkersLost("x"), "environment"),
        (ConfigError("bot:x:Y in act raised SystemExit"), "code"),
        (DiskRefused("x"), "storage"),
        (MemoryError(), "place"),
        (OSError(24, "too many open files"), "place"),
        (WireError("Finished cannot be sent: it has 2000000 bytes, more than 1048576"), "message"),
        (ValueError("an action is not legal"), "error"),
    ],
)
def test_a_failure_is_of_the_kind_of_its_place(error: BaseException, kind: str) -> None:
    assert fault_of(error).kind == kind


def test_an_error_in_a_users_file_is_its_codes() -> None:
    # This file is a user's: it belongs to no package.
    with pytest.raises(KeyError) as caught:
        raise KeyError("x")
    fault = fault_of(caught.value)
    assert (fault.kind, fault.reason.splitlines()[0]) == ("code", "KeyError: 'x'")
