"""The reason why an assignment failed, for its `Failed` message. Torch-free.

Tests: `tests/arena/learners/work/test_worker_faults.py`.
"""

from __future__ import annotations

import contextlib
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from arena.errors import (
    ArenaError,
    CheckpointCorrupt,
    CheckpointMissing,
    ConfigError,
    DiskRefused,
    EnvironmentFault,
    EnvironmentNotMade,
    NonFiniteError,
    WireError,
)
from arena.learners.ranks.link import RankFailed
from arena.types import PolicyId
from arena.users_code import (
    NetworkRaised,
    encodable,
    is_exhaustion,
    is_of_users,
    message_of,
    own_lines,
)

TRACEBACK_ENTRIES = 12
"""Entries of a traceback that are kept for an error in Arena's own code."""

MAX_REASON = 4000
"""Length at which a reason is truncated: users' code may write any length."""


MIN_SILENT_ROLLOUTS = 16

MAX_SILENT_ROLLOUTS = 1000
"""Rollouts in a row without a decision of a trainee after which an assignment fails: at the first
limit only if as many episodes as environments have ended, at the second always. An assignment of
whole episodes may end before."""


class AssignmentFault(Exception):
    """An error that ends an assignment; the fields are those of `Failed`."""

    def __init__(
        self, kind: str, reason: str, *, policy: PolicyId | None = None, key: str | None = None
    ) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = encodable(reason[:MAX_REASON])
        self.policy = policy
        self.key = key


def fault_of(error: BaseException) -> AssignmentFault:
    """Return the fault of an assignment that raised an error, with the kind of its origin."""
    if isinstance(error, AssignmentFault):
        return error
    if isinstance(error, RankFailed):
        failed = error.failed
        return AssignmentFault(failed.kind, failed.reason, policy=failed.policy, key=failed.key)
    if isinstance(error, NetworkRaised) and error.__cause__ is not None:
        cause = fault_of(error.__cause__)
        # An exhausted machine is a fault of the place, whichever player acts at that time.
        if cause.kind not in ("code", "error"):
            return cause
        return AssignmentFault(cause.kind, cause.reason, policy=error.policy, key=error.key)
    return AssignmentFault(_kind(error), _reason(error))


def _kind(error: BaseException) -> str:
    """Return the origin of an error as a kind of `Failed`."""
    # Exhaustion is checked first, because it shows as errors of many other types.
    if is_exhaustion(error):
        return "place"
    if isinstance(error, EnvironmentNotMade):
        return "making"
    if isinstance(error, EnvironmentFault):
        return "environment"
    if isinstance(error, DiskRefused):
        return "storage"
    if isinstance(error, WireError):
        return "message"
    # This is an error of a bot, an outcome or a network; environments raise `EnvironmentFault`.
    return "code" if isinstance(error, ConfigError) or is_of_users(error) else "error"


def _reason(error: BaseException) -> str:
    reason = message_of(error)
    if isinstance(error, ArenaError) or own_lines(error):
        return reason
    # This is an error in Arena's own code, and a bug report needs its traceback.
    return f"{reason}\n{''.join(traceback.format_exception(error)[-TRACEBACK_ENTRIES:])}"


@contextlib.contextmanager
def naming_checkpoint(key: str, *, policy: PolicyId | None = None) -> Iterator[None]:
    """Add a checkpoint's key and policy to the error if its directory is missing or corrupt."""
    try:
        yield
    # Other CheckpointErrors pass through: a full disk does not concern this checkpoint
    # (`DiskRefused`).
    except (CheckpointMissing, CheckpointCorrupt) as error:
        raise AssignmentFault("checkpoint", str(error), policy=policy, key=key) from error


@contextlib.contextmanager
def naming_policy(policy: PolicyId) -> Iterator[None]:
    """Add the policy's id to the error if its numbers are not finite."""
    try:
        yield
    except NonFiniteError as error:
        raise AssignmentFault("non_finite", str(error), policy=policy) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """Progress of an assignment after a rollout, over all ranks of the learner.

    Attributes:
        agent_steps: Decisions of each trainee.
        num_episodes: Number of episodes that have ended.
        is_done: Whether each environment has played its required episodes.
    """

    agent_steps: Mapping[PolicyId, int]
    num_episodes: int
    is_done: bool


class Silence:
    """Counter of each trainee's rollouts in a row without a decision.

    Args:
        num_envs: Number of environments that are played.
    """

    def __init__(self, *, num_envs: int) -> None:
        self._num_envs = num_envs
        self._num_rollouts: Counter[PolicyId] = Counter()
        self._episodes_before: Counter[PolicyId] = Counter()

    def add(self, reached: Reached, *, agent_steps_before: Mapping[PolicyId, int]) -> None:
        """Add a rollout.

        Args:
            reached: Progress after the rollout.
            agent_steps_before: Decisions of each trainee before it.

        Raises:
            AssignmentFault: If a trainee has not decided for `MAX_SILENT_ROLLOUTS`, or in any of
                the whole episodes of the assignment.
        """
        num_episodes = reached.num_episodes
        for policy, agent_steps in reached.agent_steps.items():
            if agent_steps != agent_steps_before[policy]:
                # The trainee decided, so its count restarts, and so does that of ended episodes.
                self._num_rollouts[policy], self._episodes_before[policy] = 0, num_episodes
                continue
            self._num_rollouts[policy] += 1
            num_rollouts = self._num_rollouts[policy]
            num_ended = num_episodes - self._episodes_before[policy]
            # Long episodes without a decision are legal, so as many as there are environments must
            # end first.
            is_enough = num_rollouts >= MIN_SILENT_ROLLOUTS and num_ended >= self._num_envs
            # An assignment of whole episodes may end before any limit above is reached.
            is_over = reached.is_done and agent_steps == 0
            if is_enough or is_over or num_rollouts >= MAX_SILENT_ROLLOUTS:
                raise AssignmentFault(
                    "environment",
                    f"{policy} made no decision in {num_rollouts} rollouts, in which {num_ended} "
                    "episodes ended: the environment must ask agents of each population that "
                    "trains; see populations.*.agents and environment.random_openings",
                )
