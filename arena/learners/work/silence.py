"""Notices trainees that are never asked for a decision: their assignment would never end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from arena.learners.work.faults import AssignmentFault
from arena.types import PolicyId

MIN_SILENT_ROLLOUTS = 16
MAX_SILENT_ROLLOUTS = 1000
"""Rollouts in a row without a decision of a trainee that end an assignment: the first where as many
episodes as there are environments have ended in them, the second in any case. An assignment of
whole episodes may be over before."""


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
