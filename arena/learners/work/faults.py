"""The reason why an assignment could not be done, on its way to a `Failed` message. Torch-free.

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
"""Entries of a traceback that stand for an error of Arena's own."""

MAX_REASON = 4000
"""Length at which a reason is cut off: it must fit its message, whatever users' code wrote."""


MIN_SILENT_ROLLOUTS = 16

MAX_SILENT_ROLLOUTS = 1000
"""Rollouts in a row without a decision of a trainee that end an assignment: the first where as many
episodes as there are environments have ended in them, the second in any case. An assignment of
whole episodes may be over before."""


class AssignmentFault(Exception):
    """Ends an assignment; the fields are those of `Failed`."""

    def __init__(
        self, kind: str, reason: str, *, policy: PolicyId | None = None, key: str | None = None
    ) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = encodable(reason[:MAX_REASON])
        self.policy = policy
        self.key = key


def fault_of(error: BaseException) -> AssignmentFault:
    """Return the fault of an assignment that ended with an error: its kind is the error's place."""
    if isinstance(error, AssignmentFault):
        return error
    if isinstance(error, RankFailed):
        failed = error.failed
        return AssignmentFault(failed.kind, failed.reason, policy=failed.policy, key=failed.key)
    if isinstance(error, NetworkRaised) and error.__cause__ is not None:
        cause = fault_of(error.__cause__)
        # A machine that runs out is nobody's fault, whoever plays just then.
        if cause.kind not in ("code", "error"):
            return cause
        return AssignmentFault(cause.kind, cause.reason, policy=error.policy, key=error.key)
    return AssignmentFault(_kind(error), _reason(error))


def _kind(error: BaseException) -> str:
    """Return the place of an error, a kind of `Failed`."""
    # Whatever ran out shows as an error of something else, so it is looked for first.
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
    # A bot, an outcome, a network: environments have errors of their own.
    return "code" if isinstance(error, ConfigError) or is_of_users(error) else "error"


def _reason(error: BaseException) -> str:
    reason = message_of(error)
    if isinstance(error, ArenaError) or own_lines(error):
        return reason
    # An error in Arena's own code: a report needs the traceback.
    return f"{reason}\n{''.join(traceback.format_exception(error)[-TRACEBACK_ENTRIES:])}"


@contextlib.contextmanager
def naming_checkpoint(key: str, *, policy: PolicyId | None = None) -> Iterator[None]:
    """Name the directory that turns out to be missing or corrupt."""
    try:
        yield
    # Other CheckpointErrors are let through: a full disk says nothing about this checkpoint
    # (`DiskRefused`).
    except (CheckpointMissing, CheckpointCorrupt) as error:
        raise AssignmentFault("checkpoint", str(error), policy=policy, key=key) from error


@contextlib.contextmanager
def naming_policy(policy: PolicyId) -> Iterator[None]:
    """Name the policy whose numbers turn out not to be finite."""
    try:
        yield
    except NonFiniteError as error:
        raise AssignmentFault("non_finite", str(error), policy=policy) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """Standing of an assignment after a rollout, in all ranks of the learner.

    Attributes:
        agent_steps: Decisions of each trainee.
        num_episodes: Number of episodes that have ended.
        is_done: Whether each environment has played its number of episodes.
    """

    agent_steps: Mapping[PolicyId, int]
    num_episodes: int
    is_done: bool


class Silence:
    """The number of each trainee's rollouts without a decision.

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
            reached: Standing after the rollout.
            agent_steps_before: Decisions of each trainee before it.

        Raises:
            AssignmentFault: If one of them has not decided for long, or in all of the whole
                episodes that it was to play.
        """
        num_episodes = reached.num_episodes
        for policy, agent_steps in reached.agent_steps.items():
            if agent_steps != agent_steps_before[policy]:
                # It decided: the count begins anew with the episodes that have ended by now.
                self._num_rollouts[policy], self._episodes_before[policy] = 0, num_episodes
                continue
            self._num_rollouts[policy] += 1
            num_rollouts = self._num_rollouts[policy]
            num_ended = num_episodes - self._episodes_before[policy]
            # Waiting in long episodes is no fault: as many as there are environments must end.
            is_enough = num_rollouts >= MIN_SILENT_ROLLOUTS and num_ended >= self._num_envs
            # Whole episodes may be over before any limit above is reached.
            is_over = reached.is_done and agent_steps == 0
            if is_enough or is_over or num_rollouts >= MAX_SILENT_ROLLOUTS:
                raise AssignmentFault(
                    "environment",
                    f"{policy} made no decision in {num_rollouts} rollouts, in which {num_ended} "
                    "episodes ended: the environment must ask agents of each population that "
                    "trains; see populations.*.agents and environment.random_openings",
                )
