"""Carries out assignments, one after the other, in one thread."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import torch
from msgspec import structs
from torch.optim.optimizer import register_optimizer_step_post_hook

from arena.config import LearnerSetup
from arena.envs.base import BatchedEnv
from arena.envs.make import learner_request, make_batched_env
from arena.envs.workers.envs import EnvWorkers
from arena.envs.workers.shares import shares_of
from arena.errors import (
    ArenaError,
    DiskRefused,
    EnvironmentFault,
    EnvironmentNotMade,
    EnvWorkersLost,
)
from arena.learners.ranks.crew import Crew, Ranks
from arena.learners.ranks.link import RankFailed, RankLost
from arena.learners.work.environments import (
    MIB,
    Environments,
    default_max_bytes,
    own_bytes,
)
from arena.learners.work.evaluation import evaluate
from arena.learners.work.faults import AssignmentFault, fault_of
from arena.learners.work.players import Equipment, Players
from arena.learners.work.training import train
from arena.matches.play import Progress
from arena.processes.settings import KeptSettings
from arena.types import PolicyId
from arena.users_code import message_of, pass_interrupt
from arena.wire.messages import Evaluate, Failed, Finished, Train

logger = logging.getLogger(__name__)

MAX_LOGGED_FAULTS = 4
"""Largest number of faults per assignment that are logged with tracebacks."""


class Worker:
    """Carries out assignments and returns their results.

    The result is a function of the message, the checkpoints that it names and the episodes in
    flight that it continues. Everything else that a worker keeps between assignments changes no
    result: environments, frozen players by digest, and algorithms that are bit-equal to the
    checkpoint they have just published.

    Owned by one thread, which is the only one that calls anything here.

    Args:
        setup: Setup of the learner.
        progress: Counter of steps, for heartbeats.
        should_stop: Function that returns whether the learner is to stop.
        ranks: Ranks of the learner if this worker is not rank 0; None: it is rank 0, or the only
            one.
    """

    def __init__(
        self,
        setup: LearnerSetup,
        *,
        progress: Progress,
        should_stop: Callable[[], bool],
        ranks: Ranks | None = None,
    ) -> None:
        self._setup = setup
        self._progress = progress
        self.device = resolve_device(setup.device)
        """Device of networks and environments."""
        # Settings are saved before any users' code runs in this process.
        self._settings = KeptSettings()
        self._crew: Crew | None = None
        if self.device.type != "cpu" and setup.cores > 1:
            # The device is known only here where ``auto`` chooses it.
            logger.info("one process learns, not %d: %s is not divided", setup.cores, self.device)
        elif ranks is None and setup.cores > 1:
            ranks = self._crew = Crew(setup, progress=progress, should_stop=should_stop)
            should_stop = self._crew.should_stop
        self._num_envs = setup.num_envs
        if ranks is not None:
            self._num_envs = len(shares_of(setup.num_envs, num_workers=ranks.number)[ranks.rank])
        num_workers = setup.environment.num_env_workers
        self._env_workers = EnvWorkers(num_workers) if num_workers else None
        memory_mb = setup.environment.held_memory_mb
        self._environments = Environments(
            self._make_env,
            # The memory limit is divided, because this process is one of several of the learner.
            max_bytes=default_max_bytes() if memory_mb is None else memory_mb * MIB // setup.cores,
            resident_bytes=self._resident_bytes,
        )
        self._equipment = Equipment(
            setup=setup,
            environments=self._environments,
            players=Players(setup, device=self.device),
            device=self.device,
            progress=progress,
            should_stop=should_stop,
            settings=self._settings,
            take_losses=self._take_losses,
            ranks=ranks,
        )
        self._num_void = 0
        # An optimizer step counts as progress, because an update may take minutes.
        self._hook = register_optimizer_step_post_hook(lambda *_: progress.advance())

    def carry_out(self, assignment: Train | Evaluate) -> Finished | Failed:
        """Carry out an assignment. Whatever is raised in it becomes a `Failed`.

        A train assignment publishes the checkpoints of all its trainees, or none is recorded.
        """
        self._num_void = 0
        self._settings.restore()
        try:
            if isinstance(assignment, Train):
                return train(assignment, self._equipment)
            finished = evaluate(assignment, self._equipment)
            # Dropped episodes are counted last, so that those of this assignment are included.
            dropped, lost = self._take_losses()
            return structs.replace(finished, metrics={**finished.metrics, **lost}, dropped=dropped)
        except BaseException as error:
            # Environments, bots and algorithms are users' code and may raise anything. The
            # controller decides on the consequences of a failure.
            pass_interrupt(error)
            return self._failed(assignment, error)

    def _failed(self, assignment: Train | Evaluate, error: BaseException) -> Failed:
        """Release the resources of a failed assignment, and return its fault."""
        if self._crew is not None and self._crew.is_busy:
            # The other ranks are in the middle of the assignment, and their held episodes fit no
            # other state.
            self._crew.kill()
            self._environments.lose()
        if isinstance(error, AssignmentFault | DiskRefused | RankFailed | RankLost):
            # Environments are kept, because the fault is not theirs.
            self._environments.release()
        else:
            if isinstance(error, EnvWorkersLost):
                self._environments.lose()
            # Environments that broke once are not reused.
            self._environments.discard()
        fault = fault_of(error)
        # A learner that was told to stop has no fault, so its log must show none.
        if fault.kind != "stopped":
            level = logging.INFO if isinstance(error, ArenaError) else logging.ERROR
            logger.log(level, "assignment %d failed", assignment.assignment_id, exc_info=error)
        return Failed(
            assignment_id=assignment.assignment_id,
            attempt=assignment.attempt,
            kind=fault.kind,
            reason=fault.reason,
            policy=fault.policy,
            key=fault.key,
        )

    def _take_losses(self) -> tuple[tuple[PolicyId, ...], dict[str, float]]:
        """Return the policies whose episodes were dropped, and counts of dropped and void
        episodes.
        """
        # Drops during a failed assignment are reported with the next result.
        dropped, num_dropped = self._environments.take_dropped()
        counts = {"episode/void": self._num_void, "episode/dropped": num_dropped}
        return dropped, {name: float(count) for name, count in counts.items() if count}

    def _record_fault(self, fault: EnvironmentFault) -> None:
        """Count an episode whose environment broke and was made anew as void."""
        self._num_void += 1
        # An environment that breaks in every episode must not fill the disk.
        if self._num_void <= MAX_LOGGED_FAULTS:
            logger.warning("an episode is void: %s", fault, exc_info=fault)

    def close(self) -> None:
        """Release the environments."""
        # The hook is global in torch, so it would outlive this worker.
        self._hook.remove()
        self._environments.close()
        if self._crew is not None:
            self._crew.close()
        if self._env_workers is not None:
            self._env_workers.close()
        self._settings.restore()
        self._settings.close()

    def _make_env(self, lesson: int | None) -> BatchedEnv:
        setup = self._setup
        spec = setup.spec.of_matches if lesson is None else setup.spec.in_lesson(lesson)
        request = learner_request(setup, spec=spec, device=self.device)
        # One rank plays all matches, so it has all environments.
        number = setup.num_envs if lesson is None else self._num_envs
        try:
            made = make_batched_env(
                replace(request, num_envs=number),
                on_fault=self._record_fault,
                # Environments step one by one, so slow ones report progress within a step.
                on_step=self._progress.advance,
                workers=self._env_workers,
            )
            # Users' constructors may have changed process settings.
            self._settings.restore()
            return made
        except BaseException as error:
            # This failure has its own kind: an environment's code was moved or edited, or a
            # package, a licence or a display is missing.
            pass_interrupt(error)
            what = f"making environment {spec.id}"
            raise EnvironmentNotMade(message_of(error, what=what)) from error

    def _resident_bytes(self) -> int:
        """Return the memory of this process and of its environment workers, in bytes."""
        workers = self._env_workers
        return own_bytes() + (0 if workers is None else workers.resident_bytes())


def resolve_device(name: str) -> torch.device:
    """Return the device that ``device:`` names; ``auto``: a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)
