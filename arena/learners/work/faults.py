"""The reason why an assignment could not be done, on its way to a `Failed` message."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from arena.errors import CheckpointCorrupt, CheckpointMissing, NonFiniteError
from arena.types import PolicyId


class AssignmentFault(Exception):
    """Ends an assignment; the fields are those of `Failed`."""

    def __init__(
        self, kind: str, reason: str, *, policy: PolicyId | None = None, key: str | None = None
    ) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
        self.policy = policy
        self.key = key


@contextlib.contextmanager
def naming_checkpoint(key: str, *, policy: PolicyId | None = None) -> Iterator[None]:
    """Name the directory that turns out to be missing or corrupt."""
    try:
        yield
    # Not other CheckpointErrors: a full disk says nothing about this checkpoint (`DiskRefused`).
    except (CheckpointMissing, CheckpointCorrupt) as error:
        raise AssignmentFault("checkpoint", str(error), policy=policy, key=key) from error


@contextlib.contextmanager
def naming_policy(policy: PolicyId) -> Iterator[None]:
    """Name the policy whose numbers turn out not to be finite."""
    try:
        yield
    except NonFiniteError as error:
        raise AssignmentFault("non_finite", str(error), policy=policy) from error
