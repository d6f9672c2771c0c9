"""A run from the outside: made once in an empty directory, opened by one controller at a time."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from arena.checkpoints.files import sha256_file
from arena.checkpoints.manifest import WEIGHTS
from arena.config import LearnerSetup
from arena.metrics.sink import make_sinks
from arena.types import PolicyId, WeightsRef
from populations.config import RunConfig
from populations.controller.learners import Patience
from populations.controller.state import make_state
from populations.pbt.explore import initial_hyperparameters
from populations.run_file import RUN_FILE, RunFile, learner_setup
from populations.storage.database import JOURNAL
from populations.storage.journal import Journal
from populations.storage.recovery import recover
from populations.types import EventRow, Json, PolicyRow, Row, RunRow

SETUP = "learner.json"
IMPORTS = "imports"


def has_run(run_dir: Path) -> bool:
    """Whether a directory holds a run."""
    return (run_dir / RUN_FILE).exists() or (run_dir / JOURNAL).exists()


def create_run(
    run_dir: Path,
    run_file: RunFile,
    *,
    initial_weights: Mapping[str, Mapping[str, bytes]],
    utc: str,
) -> None:
    """Make a run's directory, run.yaml, and the journal with its initial policies.

    run.yaml comes last: without it nothing goes on, and ``--force`` makes the run anew.

    Args:
        run_dir: Empty, but for the lock that the caller holds.
        run_file: What run.yaml will say.
        initial_weights: Weights and manifest to start from, file by file, by population.
        utc: For the first events.
    """
    for name in ("populations", "logs"):
        (run_dir / name).mkdir(parents=True, exist_ok=True)
    for population, files in initial_weights.items():
        target = run_dir / IMPORTS / population
        target.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (target / name).write_bytes(content)
    (run_dir / JOURNAL).unlink(missing_ok=True)
    rows: list[Row] = [RunRow(run=run_file.run)]
    policies = initial_policies(run_file.config)
    rows += policies
    for sequence, policy in enumerate(policies, start=1):
        data: dict[str, Json] = {
            "hyperparameters": dict(policy.hyperparameters),
            "reference": policy.index == 0,
        }
        rows.append(
            EventRow(
                sequence=sequence, time=utc, kind="policy_created", subject=policy.policy, data=data
            )
        )
    Journal.create(run_dir / JOURNAL, rows).close()
    run_file.save(run_dir / RUN_FILE)


def clear_run(run_dir: Path) -> None:
    """Throw away what is in a run's directory, but not its lock, which the caller holds."""
    for path in run_dir.iterdir():
        if path.name == "controller.lock":
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def initial_policies(config: RunConfig) -> list[PolicyRow]:
    """The members of all populations, diverse from the start.

    Each but the reference member gets one exploration of the start values, seeded by the run's
    seed, the population's position and the member's index.
    """
    rows = []
    for position, (name, population) in enumerate(config.populations.items()):
        for index in range(population.size):
            seed = np.random.SeedSequence([config.seed, 3, position, index])
            hyperparameters: Mapping[str, float] = population.hyperparameters
            if index > 0:
                hyperparameters = initial_hyperparameters(
                    population.hyperparameters,
                    population.search_space,
                    rng=np.random.default_rng(seed),
                )
            rows.append(
                PolicyRow(
                    policy=PolicyId(f"{name}/p{index:03d}"),
                    population=name,
                    index=index,
                    hyperparameters=dict(hyperparameters),
                )
            )
    return rows


class OpenRun:
    """A run that this process controls: its lock, its journal, its state in memory.

    Attributes:
        run_dir: The store's root.
        run_file: What run.yaml says.
        setup: What learners are set up with; also in ``learner.json``.
        journal: The only writing connection.
        state: The controller's state, equal to the journal.
    """

    def __init__(self, run_dir: Path, *, patience: Patience | None = None) -> None:
        """Open while the caller holds the run's lock: recover what a crash left, load, fold.

        Raises:
            StorageError: If the journal cannot be read or written.
        """
        self._stack = ExitStack()
        self.run_dir = run_dir
        self.run_file = RunFile.load(run_dir / RUN_FILE)
        self.setup: LearnerSetup = learner_setup(self.run_file, root=run_dir)
        (run_dir / SETUP).write_text(self.setup.model_dump_json(indent=1))
        self.journal = self._stack.enter_context(Journal.open(run_dir / JOURNAL))
        self._recover()
        self.state = make_state(
            self.run_file.config,
            self.setup,
            self.journal.load(),
            patience=patience,
            initial_weights=imported_weights(run_dir),
        )
        self.sinks = make_sinks(self.run_file.config.metrics.sinks, run_dir)
        for sink in self.sinks:
            self._stack.callback(sink.close)

    def _recover(self) -> None:
        rows = recover(self.run_dir, self.journal.load())
        if rows:
            self.journal.commit(rows)

    def note_changes(self, changes: Mapping[str, Json], *, utc: str) -> None:
        """Record which keys of the configuration a resume changed."""
        if not changes:
            return
        tables = self.state.tables
        tables.num_events += 1
        row = EventRow(
            sequence=tables.num_events,
            time=utc,
            kind="configuration_changed",
            subject="",
            data=dict(changes),
        )
        self.journal.commit([row])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()


def imported_weights(run_dir: Path) -> dict[str, WeightsRef]:
    """The weights that policies start from, by population; empty without ``--init-from``."""
    return {
        path.name: WeightsRef(
            digest=sha256_file(path / WEIGHTS), key=path.relative_to(run_dir).as_posix()
        )
        for path in sorted((run_dir / IMPORTS).glob("*"))
    }
