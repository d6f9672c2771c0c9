"""Directory of a run: made once, and opened by one controller at a time.

A change of run.yaml at a resume is atomic together with the journal's rows about it. The new file
is written beside the old one (``run.yaml.next``). The commit of the rows, which contain its digest,
makes it valid; then it replaces the old file. `settle` completes or undoes what a kill interrupted.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Self

from msgspec import structs

from arena.checkpoints.files import make_store_id, sha256_file, store_digest
from arena.checkpoints.manifest import WEIGHTS
from arena.config import LearnerSetup
from arena.errors import ConfigError
from arena.failpoints import failpoint
from arena.files import write_own
from arena.metrics.sink import JSONL, METRICS_FILE, find_sinks
from arena.resolve import NO_CODE
from arena.types import Digest, PolicyId, WeightsRef
from populations.config.resume import Change, without_secrets
from populations.config.run_config import RunConfig
from populations.config.run_file import (
    NEXT,
    RUN_FILE,
    RunFile,
    content_digest,
    imported_players,
    learner_setup,
    require_recorded,
)
from populations.config.trust import record_launch, recorded_launch
from populations.controller.evolution.generations import first_generations
from populations.controller.evolution.initial_policies import initial_policies
from populations.controller.evolution.resets import immigrant_key, reset_key
from populations.controller.evolution.rewind import reconfigure
from populations.controller.monitoring.curves import MAX_ASSIGNMENTS, go_on, read_written
from populations.controller.monitoring.sinks import Sinks
from populations.controller.state.events import Now
from populations.controller.state.goals import StopGoals
from populations.controller.state.leases import Patience
from populations.controller.state.state import make_state
from populations.errors import StorageError
from populations.matchmaking.external_players import IMPORTED, external_player_key
from populations.records.aggregates import Row
from populations.records.rows import EventRow, Json, PolicyRow, RunRow
from populations.records.tables import Tables
from populations.roles import has_exploiters
from populations.search_space import parse_search_space
from populations.storage.database import BACKUP, JOURNAL, rename_durably, storage_errors
from populations.storage.journal import Journal, JournalReader
from populations.storage.loss import accepted_loss
from populations.storage.recovery import recover

SETUP = "learner.json"
IMPORTS = "imports"


def make_run_directory(run_dir: Path) -> None:
    """Make a run's directory, with its parents, if it does not exist.

    Raises:
        StorageError: If the disk refuses.
    """
    with storage_errors(run_dir):
        failpoint("create.begin")
        run_dir.mkdir(parents=True, exist_ok=True)
        failpoint("create.directory")


def has_run(run_dir: Path) -> bool:
    """Return whether a directory holds a run."""
    return (run_dir / RUN_FILE).exists() or (run_dir / JOURNAL).exists()


def create_run(
    run_dir: Path,
    run_file: RunFile,
    *,
    initial_weights: Mapping[str, Mapping[str, bytes]],
    origins: Mapping[str, Mapping[str, Json]] | None = None,
    factors: Mapping[str, Mapping[str, float]] | None = None,
    immigrants: Mapping[str, Mapping[str, bytes]] | None = None,
    outsiders: Mapping[str, Mapping[str, Json]] | None = None,
    utc: str,
) -> str | None:
    """Make a run's files, run.yaml, and the journal with its initial policies; record the launch.

    Args:
        run_dir: Directory that is empty except for the lock, which the caller holds.
        run_file: Content of run.yaml.
        initial_weights: Files (weights and manifest) to start from, by population and file name.
        origins: Sources of the initial weights, by population, for the events.
        outsiders: Sources of imported opponents' weights, by `external_player_key`.
        factors: Factors with which schedules of hyperparameters begin, by population.
        immigrants: Files of weights for later use, by `immigrant_key` and `reset_key`, and of
            imported opponents, by `external_player_key`.
        utc: Time of the first events.

    Returns:
        Why the launch could not be recorded (`record_launch`); None: it was recorded.

    Raises:
        StorageError: If the disk refuses.
    """
    with storage_errors(run_dir):
        _create_files(run_dir, initial_weights=initial_weights, immigrants=immigrants or {})
    copied = {key: Digest(str(origin["weights"])) for key, origin in (outsiders or {}).items()}
    configuration = prepare(run_dir, run_file)
    rows: list[Row] = [RunRow(run=run_file.run, configuration=configuration, outsiders=copied)]
    policies = initial_policies(run_file.config, factors=factors)
    rows += policies
    rows += first_generations(policies)
    events = [
        *(("weights_imported", name, origin) for name, origin in (origins or {}).items()),
        *((IMPORTED, key, origin) for key, origin in (outsiders or {}).items()),
        *(("policy_created", name, about) for name, about in _births(policies)),
    ]
    rows += [
        EventRow(sequence=sequence, time=utc, kind=kind, subject=subject, data=dict(data))
        for sequence, (kind, subject, data) in enumerate(events, start=1)
    ]
    with Journal.create(run_dir / JOURNAL, rows) as journal:
        # The first backup is made at once, so that a journal that is damaged early can be repaired.
        journal.backup(run_dir / BACKUP)
    with storage_errors(run_dir):
        failpoint("create.journal")
        # The launch is recorded before run.yaml exists, because with run.yaml the run can go on.
        why_not = record_launch(run_file)
        # The file run.yaml comes last: without it no resume is possible, and ``--force`` makes the
        # run anew.
        finish(run_dir)
        failpoint("create.done")
    return why_not


def _births(policies: Sequence[PolicyRow]) -> Iterator[tuple[PolicyId, dict[str, Json]]]:
    """Yield each new policy with the data of its event."""
    for policy in policies:
        yield (
            policy.policy,
            {
                "role": policy.role,
                "hyperparameters": dict(policy.hyperparameters),
                "reference": policy.index == 0,
            },
        )


def _create_files(
    run_dir: Path,
    *,
    initial_weights: Mapping[str, Mapping[str, bytes]],
    immigrants: Mapping[str, Mapping[str, bytes]],
) -> None:
    for name in ("populations", "logs"):
        (run_dir / name).mkdir(exist_ok=True)
        failpoint("create.folder")
    imports = {f"{IMPORTS}/{name}": files for name, files in initial_weights.items()}
    for key, files in {**imports, **immigrants}.items():
        target = run_dir / key
        target.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (target / name).write_bytes(content)
            failpoint("create.import")
    (run_dir / JOURNAL).unlink(missing_ok=True)


def clear_run(run_dir: Path) -> None:
    """Remove everything in a run's directory except the lock, which the caller holds.

    Raises:
        StorageError: If the disk refuses.
    """
    with storage_errors(run_dir):
        # The file run.yaml is removed first, so that a half removed run does not count as a run.
        (run_dir / RUN_FILE).unlink(missing_ok=True)
        for path in run_dir.iterdir():
            if path.name == "controller.lock":
                continue
            failpoint("create.clear")
            # Of a link only the link itself is removed, because its target is not the run's.
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


class OpenRun:
    """Run that this process controls: its journal, its state in memory and its sinks.

    Attributes:
        run_dir: Root of the store.
        run_file: Content of run.yaml.
        setup: Set-up of the learners; also in ``learner.json``.
        journal: Only connection that writes to the journal.
        state: State of the controller, equal to the journal.
        loss: Acknowledged work that was found lost; None: nothing was lost.
    """

    def __init__(
        self,
        run_dir: Path,
        *,
        patience: Patience | None = None,
        with_sinks: bool = True,
        changed: RunFile | None = None,
        accept_loss: bool = False,
        launch_directory: str | None = None,
    ) -> None:
        """Open a run, whose lock the caller holds: recover it after a crash, load it, make a state.

        Args:
            run_dir: Run directory.
            patience: Waiting times for learners.
            with_sinks: Whether to make the sinks of metrics, which may begin runs of their own.
            changed: New content of run.yaml, which `reconfigure` writes. None: no change.
            accept_loss: Whether to open the run even if acknowledged work is lost.
            launch_directory: Directory of the code that run.yaml names, which the user trusts
                (`populations.config.trust`); ignored with ``changed``, which has its own. None: the
                directory from which this user has launched the run on this machine, if any.

        Raises:
            WorkLost: If acknowledged work is lost; nothing was written.
            StorageError: If the journal cannot be read or written.
        """
        # The path is made absolute, because users' rules run in this process and may change the
        # working directory.
        run_dir = run_dir.absolute()
        self.run_dir = run_dir
        # Losses are searched first, because later steps write, and remove what shows a loss.
        self.loss = accepted_loss(run_dir, accept=accept_loss)
        # A change of run.yaml that was interrupted is settled before the file is read.
        settle(run_dir)
        self.run_file = changed or RunFile.load(run_dir / RUN_FILE)
        if changed is None:
            where = launch_directory or recorded_launch(self.run_file) or NO_CODE
            self.run_file = replace(self.run_file, launch_directory=where)
        self.setup: LearnerSetup = learner_setup(self.run_file, root=run_dir)
        # The journal is closed again if anything after it fails.
        with ExitStack() as stack:
            self.journal = stack.enter_context(Journal.open(run_dir / JOURNAL))
            with storage_errors(run_dir):
                failpoint("open.setup")
                make_store_id(run_dir)
                # A copied run may lack this directory.
                (run_dir / "logs").mkdir(exist_ok=True)
                # The file contains the run's path, which may have changed, so it is written anew.
                write_own(run_dir / SETUP, self.setup.model_dump_json(indent=1))
            tables, config = self._recovered(), self.run_file.config
            measured = self.run_file.environment_measured
            self.state = make_state(
                config,
                self.setup,
                tables,
                patience=patience,
                initial_weights=imported_weights(run_dir),
                immigrants=imported_immigrants(run_dir, config),
                imported=imported_players_weights(run_dir, config, tables.run.outsiders),
                store=store_digest(run_dir),
                measured_length=0.0 if measured is None else measured.episode_length,
                versions=self.run_file.versions,
            )
            self.state.indexes.goals = self._goals()
            with storage_errors(run_dir):
                failpoint("open.sinks")
                makers = find_sinks(
                    self.run_file.config.metrics.sinks if with_sinks else (),
                    run_dir,
                    rotate_mb=self.run_file.config.metrics.rotate_mb,
                    keep_mb=self.run_file.config.metrics.keep_mb,
                    launch_directory=self.setup.launch_directory,
                )
                self.sinks = Sinks(makers)
            # Sinks are closed before the journal, in the reverse order of making.
            stack.callback(self.sinks.close)
            if JSONL in makers:
                with storage_errors(run_dir):
                    self._go_on_with_curves()
            self._stack = stack.pop_all()

    def _recovered(self) -> Tables:
        tables = self.journal.load()
        require_recorded(self.run_dir, tables.run.configuration)
        rows = recover(self.run_dir, tables)
        if not rows:
            return tables
        # Rows are committed and loaded again, so that memory equals the journal.
        self.journal.commit(rows)
        return self.journal.load()

    def _go_on_with_curves(self) -> None:
        """Restore the state of curves from the points that were written."""
        with JournalReader(self.run_dir / JOURNAL) as reader:
            rows = reader.assignments(
                kind="train", statuses=["finished"], limit=MAX_ASSIGNMENTS, newest=True
            )
        written = read_written(self.run_dir / METRICS_FILE)
        if written is not None:
            go_on(
                self.state.league,
                self.state.measured.curves,
                written,
                sorted(rows, key=lambda row: row.assignment_id),
            )

    def _goals(self) -> StopGoals:
        """Return the measurements that goals of ``stop`` and lessons need, from the journal."""
        config = self.run_file.config
        stop, lessons = config.stop, config.environment.curriculum
        reads_assignments = stop.success_rate is not None or any(
            lesson.until is not None and lesson.until.mean_return is not None for lesson in lessons
        )
        with JournalReader(self.run_dir / JOURNAL) as reader:
            return StopGoals.fold(
                stop.player,
                tallies=() if stop.evaluation is None else reader.all_tallies(),
                assignments=reader.all_assignments() if reads_assignments else (),
                origins=self.state.league.checkpoints,
                repeats_games=self.setup.repeats_games,
            )

    def note_event(self, kind: str, data: Mapping[str, Json], *, utc: str) -> None:
        """Record an event about what a resume finds or changes, unless ``data`` is empty."""
        if not data:
            return
        # The monotonic time may be 0, because no duration or deadline follows from this event.
        tx = self.state.begin(Now(monotonic_s=0.0, utc=utc))
        tx.add_event(kind, "", **data)
        self.journal.commit(tx.rows)

    def reconfigure(self, changes: Sequence[Change], *, utc: str) -> list[EventRow]:
        """Make changes of run.yaml durable, with an event each, and give policies the new values.

        After a kill either the old run.yaml and journal are valid, or the new ones.

        Returns:
            Events of the changes.

        Raises:
            StorageError: If the disk refuses.
        """
        if not changes:
            return []
        digest = prepare(self.run_dir, self.run_file)
        tx = self.state.begin(Now(monotonic_s=0.0, utc=utc))
        for change in changes:
            both = [without_secrets(one, change.key) for one in (change.before, change.after)]
            tx.add_event("configuration_changed", "", **{change.key: both})
        for name, population in self.run_file.config.populations.items():
            start, prefix = population.start_values, f"populations.{name}.hyperparameters."
            # Names of hyperparameters may contain dots, as do keys of their schedules, so changes
            # are compared with known names instead of being split.
            known = {
                *start,
                *(
                    n
                    for row in self.state.tables.policies.values()
                    if row.population == name
                    for n in row.hyperparameters
                ),
            }
            changed = {one: start.get(one) for one in known if _concerns(changes, prefix + one)}
            space = parse_search_space(population.search_space, start=start)
            prefix = f"populations.{name}.search_space."
            bounds = {
                one: dimension
                for one, dimension in space.items()
                if _concerns(changes, prefix + one, but=("log", "factors", "uniform"))
            }
            if changed or bounds:
                reconfigure(self.state, tx, name, changed, bounds)
        tx.put(structs.replace(self.state.tables.run, configuration=digest))
        self.journal.commit(tx.rows)
        finish(self.run_dir)
        return [row for row in tx.rows if isinstance(row, EventRow)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()


def _concerns(changes: Sequence[Change], key: str, *, but: Collection[str] = ()) -> bool:
    """Return whether a key was changed, or a key below it whose name is not in ``but``."""
    return any(
        change.key == key
        or (change.key.startswith(f"{key}.") and change.key.removeprefix(f"{key}.") not in but)
        for change in changes
    )


def imported_weights(run_dir: Path) -> dict[str, WeightsRef]:
    """Return the weights that policies start from, by population; empty without ``--init-from``."""
    paths = sorted((run_dir / IMPORTS).glob("*"))
    return {path.name: _reference(run_dir, f"{IMPORTS}/{path.name}") for path in paths}


def imported_immigrants(run_dir: Path, config: RunConfig) -> dict[str, WeightsRef]:
    """Return the weights for immigration and resets, by `immigrant_key` and `reset_key`.

    Raises:
        StorageError: If some of them cannot be read.
    """
    keys = [
        immigrant_key(name, index)
        for name in config.learning
        for index in range(len(config.pbt_of(name).immigration.players))
    ]
    if config.roles.is_imported:
        keys += [
            reset_key(name)
            for name, population in config.populations.items()
            if has_exploiters(population.roles)
        ]
    return {key: _reference(run_dir, key) for key in keys}


def imported_players_weights(
    run_dir: Path, config: RunConfig, recorded: Mapping[str, Digest]
) -> dict[str, WeightsRef]:
    """Return the weights of players of other runs, by `external_player_key`.

    Args:
        run_dir: Run directory.
        config: Configuration of the run, which names the players.
        recorded: Digests of the weights that were copied at launch, by directory.

    Raises:
        StorageError: If some cannot be read, or have changed since they were copied.
    """
    found: dict[str, WeightsRef] = {}
    for index, name in imported_players(config).items():
        for population in config.populations:
            key = external_player_key(index, population)
            # A player may not play for this population; a run of an earlier release records no
            # digests.
            if key not in recorded and not (run_dir / key).is_dir():
                continue
            found[key] = _reference(run_dir, key)
            if found[key].digest != recorded.get(key, found[key].digest):
                raise StorageError(
                    f"{run_dir / key / WEIGHTS} is not what was copied of {name} at launch: its "
                    f"sha256 is {found[key].digest[:12]}..., it was {recorded[key][:12]}..."
                )
    return found


def _reference(run_dir: Path, key: str) -> WeightsRef:
    try:
        return WeightsRef(digest=sha256_file(run_dir / key / WEIGHTS), key=key)
    except OSError as error:
        raise StorageError(f"{run_dir / key / WEIGHTS} cannot be read: {error.strerror}") from error


def prepare(run_dir: Path, run_file: RunFile) -> Digest:
    """Write a new run.yaml beside the old one, and return its digest.

    Raises:
        StorageError: If the disk refuses.
    """
    run_file.save(run_dir / NEXT)
    return content_digest(run_dir / NEXT)


def finish(run_dir: Path) -> None:
    """Replace the old run.yaml by the new one; call it once the journal has the new digest.

    Raises:
        StorageError: If the disk refuses; the next `settle` tries again.
    """
    with storage_errors(run_dir / RUN_FILE):
        rename_durably(run_dir / NEXT, run_dir / RUN_FILE)


def current_file(run_dir: Path) -> Path:
    """Return the path of the valid run.yaml: the new one, if the journal has its digest.

    The caller must have the lock. Nothing is written.

    Raises:
        StorageError: If the disk refuses or the journal cannot be read.
    """
    path, digest = run_dir / NEXT, None
    if not path.exists():
        return run_dir / RUN_FILE
    # If the new file cannot be read, it is incomplete or damaged, and the old file is valid.
    with contextlib.suppress(ConfigError):
        digest = content_digest(path)
    with JournalReader(run_dir / JOURNAL, is_alone=True) as reader:
        committed = reader.load(pairs=()).run.configuration
    return path if digest == committed else run_dir / RUN_FILE


def settle(run_dir: Path) -> None:
    """Finish a change of run.yaml that the journal has, or undo one that it does not have.

    The caller must have the lock.

    Raises:
        StorageError: If the disk refuses or the journal cannot be read.
    """
    if current_file(run_dir) == run_dir / NEXT:
        finish(run_dir)
        return
    with storage_errors(run_dir / NEXT):
        (run_dir / NEXT).unlink(missing_ok=True)
