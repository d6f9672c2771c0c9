"""How many learner processes, and which of them serve which populations."""

from __future__ import annotations

from populations.config.run_config import RunConfig
from populations.controller.state.leases import Slot


def make_slots(config: RunConfig) -> list[Slot]:
    """Return one slot per learner; bound to a population where the configuration counts them apart.

    In deterministic mode one learner does everything in one order, unless populations are bound to
    learners of their own; then each has one.
    """
    learners = config.learners
    if isinstance(learners, dict):
        return [
            Slot(populations=(population,))
            for population, count in learners.items()
            for _ in range(1 if config.deterministic else count)
        ]
    # Of several learners without populations of their own, speed would decide who does what.
    count = 1 if config.deterministic or learners is None else learners
    return [Slot(populations=()) for _ in range(count)]
