from __future__ import annotations

import pytest

from arena.learners.work.faults import MAX_SILENT_ROLLOUTS, AssignmentFault, Reached, Silence
from arena.types import PolicyId

POLICY, OTHER = PolicyId("player/p000"), PolicyId("player/p001")


def test_who_never_decides_beside_somebody_who_does_is_named() -> None:
    """A team of which one member's agents are never asked."""
    silence = Silence(num_envs=2)
    before = {POLICY: 0, OTHER: 0}
    for rollout in range(1, 17):
        reached = Reached(
            agent_steps={POLICY: 8 * rollout, OTHER: 0},
            num_episodes=rollout,
            is_done=False,
        )
        if rollout == 16:
            with pytest.raises(AssignmentFault, match=f"{OTHER} made no decision in 16 rollouts"):
                silence.add(reached, agent_steps_before=before)
        else:
            silence.add(reached, agent_steps_before=before)
        before = dict(reached.agent_steps)


def test_without_ended_episodes_it_takes_longer() -> None:
    silence = Silence(num_envs=2)
    reached = Reached(agent_steps={POLICY: 0}, num_episodes=0, is_done=False)
    for _ in range(MAX_SILENT_ROLLOUTS - 1):
        silence.add(reached, agent_steps_before={POLICY: 0})
    with pytest.raises(AssignmentFault, match="in which 0 episodes ended"):
        silence.add(reached, agent_steps_before={POLICY: 0})


def test_whole_episodes_that_are_over_without_a_decision_end_it_at_once() -> None:
    reached = Reached(agent_steps={POLICY: 0}, num_episodes=0, is_done=True)
    with pytest.raises(AssignmentFault, match=f"{POLICY} made no decision in 1 rollouts"):
        Silence(num_envs=2).add(reached, agent_steps_before={POLICY: 0})


def test_a_decision_begins_the_count_anew() -> None:
    silence = Silence(num_envs=1)
    steps = 0
    for rollout in range(1, 40):
        before, steps = steps, steps + (rollout % 10 == 0)
        reached = Reached(
            agent_steps={POLICY: steps},
            num_episodes=rollout,
            is_done=False,
        )
        silence.add(reached, agent_steps_before={POLICY: before})
