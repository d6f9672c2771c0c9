from __future__ import annotations

import pytest

from arena.errors import CheckpointCorrupt, CheckpointMissing, NonFiniteError
from arena.learners.work.faults import AssignmentFault, naming_checkpoint, naming_policy
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
