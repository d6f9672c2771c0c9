"""Notices trainees that are never asked for a decision: their assignment would never end."""

from __future__ import annotations

from collections.abc import Mapping

from arena.learners.faults import AssignmentFault
from arena.rollout.collector import Collector
from arena.types import PolicyId

MIN_SILENT_ROLLOUTS = 16
MAX_SILENT_ROLLOUTS = 1000
"""Rollouts in a row without a decision of a trainee that end an assignment: the first where as many
episodes as there are environments have ended in them, the second in any case."""


class Silence:
    """Counts rollouts without a decision of a trainee.

    Args:
        num_envs: Environments that are played.
    """

    def __init__(self, *, num_envs: int) -> None:
        self._num_envs = num_envs
        self._num_rollouts = 0
        self._episodes_before = 0

    def note(self, collector: Collector, *, agent_steps_before: Mapping[PolicyId, int]) -> None:
        """Take in a rollout.

        Args:
            collector: Its counts after the rollout.
            agent_steps_before: Of each trainee before it.

        Raises:
            AssignmentFault: If trainees have not decided for long.
        """
        num_episodes = sum(tally.matches for tally in collector.episodes())
        if collector.agent_steps != agent_steps_before:
            self._num_rollouts, self._episodes_before = 0, num_episodes
            return
        self._num_rollouts += 1
        num_ended = num_episodes - self._episodes_before
        is_enough = self._num_rollouts >= MIN_SILENT_ROLLOUTS and num_ended >= self._num_envs
        if is_enough or self._num_rollouts >= MAX_SILENT_ROLLOUTS:
            policies = ", ".join(collector.agent_steps)
            raise AssignmentFault(
                "environment",
                f"{policies} made no decision in {self._num_rollouts} rollouts, in which "
                f"{num_ended} episodes ended: the environment must ask agents of each population "
                "that trains; see populations.*.agents and environment.random_openings",
            )
