"""The section ``alerts``, and which kinds of alerts there are."""

from __future__ import annotations

from typing import Literal

from arena.config import Model

AlertKind = Literal[
    "no_episode_ended",
    "reward_constant",
    "observations_constant",
    "entropy_collapsed",
    "loss_high",
    "kl_high",
    "void_episodes",
    "learner_failing",
    "learners_idle",
    "explore_fell_back",
    "exploit_fell_back",
    "pbt_undecided",
    "no_steps",
    "sink_failed",
]
"""What `populations.controller.monitoring.alerts` raises."""


class AlertsConfig(Model):
    """What somebody should look at; alerts are raised in any case."""

    fail: tuple[AlertKind, ...] = ()
    """Kinds of alerts that end the run, with exit code 3."""
