"""Terms on which a run's store serves: whose keys are let in, and what each learner may publish.

The controller tells the process that serves the store all of both with each change, one line of
JSON (`populations.launchers.store_keeper`): a process that was started again knows no less.

Tests: `tests/arena/transfer/test_service.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import field
from msgspec.structs import replace

from arena.checkpoints.manifest import PolicyRecord
from arena.codec import to_json
from arena.errors import CheckpointError
from arena.types import (
    MAX_AGENT_STEPS,
    AgentSteps,
    Counters,
    Digest,
    Document,
    Value,
)
from arena.wire.messages import Train


class NotGranted(CheckpointError):
    """No open assignment of a learner may publish a checkpoint."""


class Grant(Counters, frozen=True, kw_only=True):
    """Checkpoint of one trainee that an open assignment of a learner may publish.

    Its counters are those before the assignment.

    Attributes:
        policy: The trainee.
        max_agent_steps: Most agent steps that it may have afterwards.
        hyperparameters: Those that it trains with.
        parent: Digest of the checkpoint that it is trained from; None: the first one.
        donor: Policy that this one belongs to, if it is another one.
    """

    policy: str
    max_agent_steps: AgentSteps
    hyperparameters: dict[str, Value]
    parent: Digest | None
    donor: str | None


class Terms(Document, frozen=True, kw_only=True):
    """Terms that the store's process is told.

    Attributes:
        admitted: Names of learners whose keys are let in, by public key in hexadecimal digits.
        grants: Checkpoints that each learner may publish, by the name of its key.
    """

    admitted: dict[str, str]
    grants: dict[str, tuple[Grant, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, admitted: Mapping[bytes, str]) -> Terms:
        """Make terms without grants.

        Args:
            admitted: Names by public key (32 bytes).
        """
        return cls(admitted=_by_digits(admitted))

    def admitting(self, learners: Mapping[bytes, str]) -> Terms:
        """Return the same terms with other keys: names by public key (32 bytes)."""
        return replace(self, admitted=_by_digits(learners))

    def granting(self, grants: Mapping[str, tuple[Grant, ...]]) -> Terms:
        """Return the same terms with other grants."""
        return replace(self, grants=dict(grants))

    @property
    def keys(self) -> dict[bytes, str]:
        """Names by public key (32 bytes)."""
        return {bytes.fromhex(public): name for public, name in self.admitted.items()}

    @property
    def line(self) -> bytes:
        """Line that tells them; it has no secret."""
        return to_json(self).encode()


def _by_digits(learners: Mapping[bytes, str]) -> dict[str, str]:
    return {public.hex(): name for public, name in learners.items()}


def grants_of(message: Train, *, max_agent_steps: int) -> tuple[Grant, ...]:
    """Return what the learner that has an assignment may publish.

    Args:
        message: The assignment.
        max_agent_steps: Most agent steps of all its trainees in it.
    """
    return tuple(
        Grant(
            policy=trainee.policy,
            generation=trainee.generation,
            agent_steps=trainee.agent_steps,
            max_agent_steps=min(trainee.agent_steps + max_agent_steps, MAX_AGENT_STEPS),
            learner_updates=trainee.learner_updates,
            hyperparameters=dict(trainee.hyperparameters),
            parent=None if trainee.checkpoint is None else trainee.checkpoint.digest,
            donor=trainee.donor,
        )
        for trainee in message.trainees
    )


def check_granted(record: PolicyRecord, grants: tuple[Grant, ...]) -> None:
    """Refuse a checkpoint that no open assignment of its learner may publish.

    Raises:
        NotGranted: Saying why.
    """
    own = [grant for grant in grants if grant.policy == record.policy]
    if not own:
        raise NotGranted(f"this learner has no open assignment that trains {record.policy}")
    for grant in own:
        problem = _problem(record, grant)
        if problem is None:
            return
    raise NotGranted(f"{record.policy} is not what its assignment may publish: {problem}")


def _problem(record: PolicyRecord, grant: Grant) -> str | None:
    for name in ("generation", "parent", "donor", "hyperparameters"):
        found, expected = getattr(record, name), getattr(grant, name)
        if found != expected:
            return f"its {name} is {found}, not {expected}"
    if not grant.agent_steps <= record.agent_steps <= grant.max_agent_steps:
        return (
            f"its agent_steps are {record.agent_steps}, not from {grant.agent_steps} to "
            f"{grant.max_agent_steps}"
        )
    if record.learner_updates < grant.learner_updates:
        return f"its learner_updates are {record.learner_updates}, below {grant.learner_updates}"
    return None
