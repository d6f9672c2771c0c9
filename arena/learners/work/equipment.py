"""Equipment with which a worker carries out every assignment.

Tests: `tests/arena/learners/work/test_worker.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from arena.config import LearnerSetup
from arena.learners.ranks.crew import Ranks
from arena.learners.ranks.results import Losses
from arena.learners.work.environments import Environments
from arena.learners.work.players import Players
from arena.matches.play import Progress
from arena.processes.settings import KeptSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Equipment:
    """Equipment with which a worker carries out every assignment. Owned by its thread.

    Attributes:
        setup: Setup of the learner.
        environments: Environments, made when they are first needed.
        players: Players and algorithms that are loaded already.
        device: Device of networks and environments.
        progress: Counter of steps, for heartbeats.
        should_stop: Function that returns whether the learner is to stop.
        settings: Settings of the process for Arena's own work.
        take_losses: Function that returns the episodes that were lost since the last call.
        ranks: Processes that carry out training assignments together; None: this one does alone.
    """

    setup: LearnerSetup
    environments: Environments
    players: Players
    device: torch.device
    progress: Progress
    should_stop: Callable[[], bool]
    settings: KeptSettings
    take_losses: Callable[[], Losses]
    ranks: Ranks | None = None
