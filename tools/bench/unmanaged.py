"""Learners without a league: they train on a run's journal, without a controller.

    python -m populations.commands.bench.unmanaged --run-dir DIR --learner 0 --learners 2 \
        --seconds 10

Plays the recorded training assignments (trainees, opponents, budgets) one after the other with the
learner's own pieces, and leaves out everything else: no controller, no messages, no checkpoints, no
ghosts, no evaluation, no PBT. Weights go on from one assignment to the next in memory.

Tests: `tests/tools/bench/test_whole_run.py`.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import cycle
from pathlib import Path

import torch
from msgspec import structs

from arena.checkpoints.manifest import WEIGHTS
from arena.config import LearnerSetup
from arena.core import Algorithm
from arena.envs.make import learner_request, make_batched_env
from arena.learners.work.players import Players
from arena.learners.work.training import seatings_that_fit
from arena.learners.work.worker import resolve_device
from arena.matches.seeds import seed_everything
from arena.rollout.collector import TrainingBlock
from arena.rollout.recorder import Learning
from arena.types import Entrant, PolicyId, Seating
from arena.wire.messages import Train, Trainee
from populations.config.run_file import RUN_FILE, RunFile, learner_setup
from populations.errors import RunFailed
from populations.storage.database import JOURNAL
from populations.storage.journal import JournalReader

from .children import report, wait_for_go
from .learner import make_collector, play_and_learn
from .measure import timed


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
        # Retention has removed opponents that were no ghosts.
        and all(_is_there(run_dir, seating) for seating in row.message.opponents)
    ]
    if not found:
        raise RunFailed(f"{run_dir} has recorded no training that could be played again")
    return found


def _is_there(run_dir: Path, seating: Seating) -> bool:
    references = [player.weights for player in seating.players if player.weights is not None]
    # A file and not the directory: opponents need no optimizer's state.
    return all((run_dir / reference.key / WEIGHTS).exists() for reference in references)


class UnmanagedLearner:
    """Learner that trains the policies of one run as its learners did, by itself.

    Args:
        run_dir: The run; it is not changed.
        messages: Assignments to train, again from the start when all are done.
    """

    def __init__(self, run_dir: Path, messages: Sequence[Train]) -> None:
        run_file = RunFile.load(run_dir / RUN_FILE)
        # `arena bench` has launched it, in this very process's directory.
        run_file = dataclasses.replace(run_file, launch_directory=run_file.launched_in)
        self._setup: LearnerSetup = learner_setup(run_file, root=run_dir)
        self._messages = messages
        self._device = resolve_device(self._setup.device)
        self._players = Players(self._setup, device=self._device)
        self._agents = self._setup.agents_of
        self._algorithms: dict[PolicyId, Algorithm] = {}
        self._env = make_batched_env(
            learner_request(self._setup, spec=self._setup.spec.in_lesson(0), device=self._device)
        )

        self._rollouts = self._trained()

    def close(self) -> None:
        """Release the environments."""
        self._env.close()

    def __call__(self) -> int:
        """Play one rollout and learn from it, and return the agent steps."""
        return next(self._rollouts)

    def _trained(self) -> Iterator[int]:
        for message in cycle(self._messages):
            generator = seed_everything(message.seed, device=self._device)
            collector = make_collector(
                self._setup,
                self._env,
                blocks=self._blocks(message),
                players=self._players,
                generator=generator,
                seed=message.seed,
            )
            # Rollouts are whole, so more may be done than the budget.
            while sum(collector.agent_steps.values()) < message.agent_steps:
                yield play_and_learn(collector, generator=generator)

    def _blocks(self, message: Train) -> list[TrainingBlock]:
        learning = {
            trainee.entrant: Learning(policy=trainee.policy, algorithm=self._algorithm(trainee))
            for trainee in message.trainees
        }
        trainees: dict[str, Entrant] = {one.policy: one.entrant for one in message.trainees}
        seatings = seatings_that_fit(
            message.opponents, num_envs=self._env.num_envs, seed=message.seed
        )
        return [self._block(seating, trainees, learning) for seating in seatings]

    def _block(
        self,
        seating: Seating,
        trainees: Mapping[str, Entrant],
        learning: Mapping[Entrant, Learning],
    ) -> TrainingBlock:
        entrants = seating.entrants(trainees)
        seated = zip(self._setup.training_seats, seating.players, entrants, strict=True)
        players = (
            learning.get(entrant) or self._players.frozen(player, population=seat.population)
            for seat, player, entrant in seated
        )
        return TrainingBlock(entrants=entrants, players=tuple(players))

    def _algorithm(self, trainee: Trainee) -> Algorithm:
        """Return the policy in memory, with fresh weights the first time."""
        if trainee.policy not in self._algorithms:
            # The checkpoints of a run's start may be gone, and weights cost alike.
            fresh = structs.replace(
                trainee, checkpoint=None, initial_weights=None, learner_updates=0
            )
            self._algorithms[trainee.policy] = self._players.algorithm(fresh, seed=0)
        return self._algorithms[trainee.policy]


def main(argv: Sequence[str] | None = None) -> None:
    """Train, and report as `children` wants it."""
    parser = argparse.ArgumentParser(prog="unmanaged", allow_abbrev=False)
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--learner", type=int, default=0, help="index of this learner")
    parser.add_argument(
        "--learners", type=int, default=1, help="number of learners that share the assignments"
    )
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    messages = recorded_training(options.run_dir)
    # With fewer assignments than learners some train the same ones.
    mine = messages[options.learner :: options.learners] or messages
    learner = UnmanagedLearner(options.run_dir, mine)
    # One rollout and update, to allocate and import before the clock starts.
    learner()
    wait_for_go()
    agent_steps, duration_s = timed(learner, seconds=options.seconds)
    learner.close()
    report(agent_steps, duration_s)


if __name__ == "__main__":
    main()
