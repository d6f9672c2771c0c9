"""Learners without a league: they train on a run's journal, without a controller.

    python -m populations.commands.bench.unmanaged 10 DIR 0 2

The arguments are seconds, a run, and which learner of how many it is.
Plays the recorded training assignments (trainees, opponents, budgets) one after the other with the
learner's own pieces, and leaves out everything else: no controller, no messages, no checkpoints, no
ghosts, no evaluation, no PBT. Weights go on from one assignment to the next in memory.

Tests: `tests/tools/bench/test_whole_run.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import cycle
from pathlib import Path

from msgspec import structs

from arena.checkpoints.manifest import WEIGHTS
from arena.config import LearnerSetup
from arena.envs.make import learner_request, make_batched_env
from arena.learners.work.players import Players
from arena.learners.work.worker import resolve_device
from arena.matches.seeds import seed_everything
from arena.rollout.recorder import Learning
from arena.types import PolicyId, Seating
from arena.wire.messages import Train, Trainee
from populations.config.run_file import RUN_FILE, RunFile, learner_setup
from populations.errors import RunFailed
from populations.storage.database import JOURNAL
from populations.storage.journal import JournalReader

from .children import work_as_child
from .learner import make_collector, play_and_learn


def recorded_training(run_dir: Path) -> list[Train]:
    """Return the training assignments that a run has finished and whose opponents are still on
    disk.

    Raises:
        RunFailed: If there is none.
    """
    with closing(JournalReader(run_dir / JOURNAL)) as reader:
        rows = reader.assignments(statuses=["finished"], kind="train")
    found = [
        row.message
        for row in rows
        if isinstance(row.message, Train)
        # Assignments of 0 steps only published initial weights.
        and row.message.agent_steps > 0
        # Some opponents' checkpoints were removed by retention, because they were not ghosts.
        and all(_is_there(run_dir, seating) for seating in row.message.opponents)
    ]
    if not found:
        raise RunFailed(f"{run_dir} has recorded no training that could be played again")
    return found


def _is_there(run_dir: Path, seating: Seating) -> bool:
    references = [player.weights for player in seating.players if player.weights is not None]
    # The weights file is checked, because opponents need no optimizer state.
    return all((run_dir / reference.key / WEIGHTS).exists() for reference in references)


class UnmanagedLearner:
    """Learner that trains the policies of one run as its learners did, by itself.

    Args:
        run_dir: The run; it is not changed.
        messages: Assignments to train, again from the start when all are done.
    """

    def __init__(self, run_dir: Path, messages: Sequence[Train]) -> None:
        run_file = RunFile.load(run_dir / RUN_FILE)
        # `arena bench` has launched the run in the directory of this process.
        run_file = dataclasses.replace(run_file, launch_directory=run_file.launched_in)
        self._setup: LearnerSetup = learner_setup(run_file, root=run_dir)
        self._messages = messages
        self._device = resolve_device(self._setup.device)
        self._players = Players(self._setup, device=self._device)
        self._policies: dict[PolicyId, Learning] = {}
        self._env = make_batched_env(
            learner_request(self._setup, spec=self._setup.spec.in_lesson(0), device=self._device)
        )
        self._rollouts = self._trained()

    def __call__(self) -> int:
        """Play one rollout and learn from it, and return the agent steps."""
        return next(self._rollouts)

    def _trained(self) -> Iterator[int]:
        for message in cycle(self._messages):
            generator = seed_everything(message.seed, device=self._device)
            collector = make_collector(
                self._setup,
                self._env,
                seatings=message.opponents,
                learning={one.policy: self._learning(one) for one in message.trainees},
                frozen=self._players.frozen,
                players=self._players,
                generator=generator,
                seed=message.seed,
            )
            # Rollouts are whole, so the steps may exceed the budget.
            while sum(collector.agent_steps.values()) < message.agent_steps:
                yield play_and_learn(collector, generator=generator)

    def _learning(self, trainee: Trainee) -> Learning:
        """Return the policy in memory, with fresh weights the first time."""
        if trainee.policy not in self._policies:
            # A checkpoint of the run's start may be removed by now, and fresh weights cost the
            # same.
            fresh = structs.replace(
                trainee, checkpoint=None, initial_weights=None, learner_updates=0
            )
            algorithm = self._players.algorithm(fresh, seed=0)
            self._policies[trainee.policy] = Learning(policy=trainee.policy, algorithm=algorithm)
        return self._policies[trainee.policy]


def _work(run_dir: str, learner: str, learners: str) -> UnmanagedLearner:
    """Return one of several learners that share the assignments of a run."""
    messages = recorded_training(Path(run_dir))
    # With fewer assignments than learners, some learners train the same ones.
    return UnmanagedLearner(Path(run_dir), messages[int(learner) :: int(learners)] or messages)


if __name__ == "__main__":
    work_as_child(_work)
