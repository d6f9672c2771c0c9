from __future__ import annotations

import pytest

from arena.errors import (
    CheckpointCorrupt,
    CheckpointMissing,
    ConfigError,
    DiskRefused,
    EnvironmentFault,
    EnvironmentNotMade,
    EnvWorkersLost,
    NonFiniteError,
    WireError,
)
from arena.learners.work.faults import AssignmentFault, fault_of, naming_checkpoint, naming_policy
from arena.types import PolicyId

POLICY = PolicyId("player/p000")


@pytest.mark.parametrize("error", [CheckpointMissing, CheckpointCorrupt])
def test_a_checkpoint_that_cannot_be_used_is_named(error: type[Exception]) -> None:
    naming = naming_checkpoint("policies/x", policy=POLICY)
    with pytest.raises(AssignmentFault, match="no such file") as fault, naming:
        raise error("no such file")
    assert (fault.value.kind, fault.value.key) == ("checkpoint", "policies/x")
    assert fault.value.policy == POLICY


def test_a_policy_whose_numbers_are_not_finite_is_named() -> None:
    with pytest.raises(AssignmentFault, match="inf") as fault, naming_policy(POLICY):
        raise NonFiniteError("inf")
    assert (fault.value.kind, fault.value.policy) == ("non_finite", POLICY)
    assert fault.value.key is None


def test_other_errors_go_through() -> None:
    with pytest.raises(KeyError), naming_checkpoint("policies/x"), naming_policy(POLICY):
        raise KeyError("x")


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
