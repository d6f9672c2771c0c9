"""Checks of all invariants of a run directory; nothing is written.

Faults are broken invariants. Notes are states that are normal in a running or crashed run, and that
the next resume repairs.

PBT's invariants are that generations have no gaps and that pending decisions can be carried out
(`check_evolution`).
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter
from pathlib import Path

from arena.checkpoints.files import (
    DIRECTORY_NAME,
    TEMPORARY,
    list_directories,
    resolve_key,
    verify_directory,
)
from arena.checkpoints.manifest import OPTIMIZER, check_manifest
from arena.config import LearnerSetup
from arena.errors import CheckpointError, ConfigError
from arena.matches.seating import problem_of
from arena.types import AssignmentId, Entrant, PolicyId, Seat, ghost_id, is_external, population_of
from arena.wire.messages import Train
from populations.audit.adoption import ADOPTED
from populations.audit.tally_checks import check_tallies
from populations.choices import is_known, kinds
from populations.config.run_file import RUN_FILE, RunFile, learner_setup, require_recorded
from populations.errors import StorageError
from populations.league.lineage import removed_checkpoints, removed_generations
from populations.league.merging import merges
from populations.records.rows import (
    ArchiveRow,
    AssignmentRow,
    CheckpointRow,
    EventRow,
    GenerationRow,
    GhostRow,
    PolicyRow,
    RunRow,
)
from populations.records.tables import ARCHIVED, Tables
from populations.roles import MAIN
from populations.storage.archive import check_archive
from populations.storage.backup import backup_problem
from populations.storage.database import BACKUP, JOURNAL
from populations.storage.journal import JournalReader
from populations.storage.lock import is_released, lock_holder
from populations.storage.loss import find_loss
from populations.storage.recovery import unrecorded_checkpoints

Made = tuple[AssignmentId, PolicyId]
"""Identity of a checkpoint: the assignment that made it, and its policy."""


@dataclass(slots=True, kw_only=True)
class Sums:
    """Sums over events and assignments, to compare with counters in other rows.

    Attributes:
        num_events: Number of events.
        has_gap: Whether their sequence numbers have gaps.
        donors: Donor of each event ``exploited``, by its sequence.
        adopted: Agent steps of each policy in lost assignments whose checkpoints were adopted.
        removed: Agent steps of checkpoints whose rows were removed.
        generations: Generations whose rows were removed.
        finished: Number of finished assignments.
        training: Number of finished training assignments with agent steps.
        evaluation: Number of finished evaluation assignments.
        agent_steps: Agent steps of finished assignments.
        matches: Matches of finished assignments.
        trained: Agent steps of each policy in finished assignments.
        matches_of: Matches of each assignment.
        last: Highest id of an assignment; 0 without one.
    """

    num_events: int = 0
    has_gap: bool = False
    donors: dict[int, object] = field(default_factory=dict)
    adopted: Counter[PolicyId] = field(default_factory=Counter)
    removed: dict[Made, int] = field(default_factory=dict)
    generations: dict[Entrant, GenerationRow] = field(default_factory=dict)
    finished: int = 0
    training: int = 0
    evaluation: int = 0
    agent_steps: int = 0
    matches: int = 0
    trained: Counter[PolicyId] = field(default_factory=Counter)
    matches_of: dict[AssignmentId, int] = field(default_factory=dict)
    last: int = 0

    def add_events(self, rows: Iterable[EventRow]) -> None:
        """Add all events, in order."""
        for row in rows:
            self.num_events += 1
            self.has_gap = self.has_gap or row.sequence != self.num_events
            if row.kind == "exploited":
                self.donors[row.sequence] = row.data.get("donor")
            before, after = row.data.get("agent_steps_before"), row.data.get("agent_steps")
            if row.kind == ADOPTED and isinstance(before, int) and isinstance(after, int):
                self.adopted[PolicyId(row.subject)] += after - before
            for policy, agent_steps, assignment_id, _ in removed_checkpoints([row]):
                self.removed[assignment_id, policy] = agent_steps
            self.generations.update(removed_generations([row]))

    def add_assignments(
        self, rows: Iterable[AssignmentRow], checkpoints: Mapping[str, CheckpointRow]
    ) -> None:
        """Add all assignments; call it after `add_events`.

        Args:
            rows: All assignments.
            checkpoints: Recorded checkpoints.
        """
        # An assignment with several trainees records only the sum of their steps, so the steps of a
        # trainee are the difference between its checkpoint and its counter at the start.
        made = {(row.assignment_id, row.policy): row.agent_steps for row in checkpoints.values()}
        made.update(self.removed)
        for row in rows:
            self.matches_of[row.assignment_id] = row.matches
            self.last = max(self.last, row.assignment_id)
            if row.status != "finished":
                continue
            self.finished += 1
            self.agent_steps += row.agent_steps
            self.matches += row.matches
            if not isinstance(row.message, Train):
                self.evaluation += 1
                continue
            # An assignment that only published an initial checkpoint has 0 steps and does not
            # count.
            self.training += row.agent_steps > 0
            trainees = row.message.trainees
            for trainee in trainees:
                after = made.get((row.assignment_id, trainee.policy), trainee.agent_steps)
                alone = len(trainees) == 1
                self.trained[trainee.policy] += (
                    row.agent_steps if alone else after - trainee.agent_steps
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Result of a check.

    Attributes:
        faults: Broken invariants; empty for a sound run.
        notes: States that the next resume repairs, or that are no faults.
    """

    faults: list[str]
    notes: list[str]


def verify_run(run_dir: Path) -> Report:
    """Check a run directory in any state of the run.

    While a controller has the run, a fault counts only if a second check finds it, too.
    """
    report = _verify_once(run_dir)
    # A controller may change files after the journal was read. Without a controller nothing
    # changes, so a second check would find the same faults.
    if report.faults and lock_holder(run_dir) is not None:
        again = _verify_once(run_dir)
        return Report(faults=[f for f in again.faults if f in report.faults], notes=again.notes)
    return report


def _verify_once(run_dir: Path) -> Report:
    faults: list[str] = []
    try:
        run_file = RunFile.load(run_dir / RUN_FILE)
    except (ConfigError, StorageError) as error:
        # The journal is still checked, except for its aggregates, which need the seats.
        run_file = None
        faults.append(f"{RUN_FILE}: {error}")
    try:
        with JournalReader(run_dir / JOURNAL) as reader:
            reader.integrity_check()
            # Read all tables in one snapshot, as sums over tables of two commits would differ.
            with reader.snapshot():
                tables, archives = reader.load(), reader.archives()
                wrong_rows = list(_check_rows(reader, tables, run_file))
        # Comparing files is safe only while no controller writes to them.
        loss = find_loss(run_dir) if lock_holder(run_dir) is None else None
    except StorageError as error:
        return Report(faults=[*faults, str(error)], notes=[])
    faults += _check_files(run_dir, tables)
    if loss is not None:
        faults.append(str(loss))
    faults += [*wrong_rows, *_check_ranges(archives)]
    setup = None if run_file is None else learner_setup(run_file, root=run_dir)
    faults += _check_checkpoints(run_dir, tables, setup)
    faults += _check_ghosts(run_dir, tables, setup)
    if setup is not None:
        faults += _check_games(tables, setup.seats)
    archived = [check_archive(run_dir, row) for row in archives if row.file]
    faults += [problem for problem in archived if problem is not None]
    notes = [*_expected(tables), *_unknown_ghosts(run_dir, tables)]
    leftovers = _leftovers(run_dir, tables)
    # A running or killed controller may leave temporary directories, which the next start removes.
    # After an orderly end there must be none. The end is committed before they are removed, so the
    # state alone does not show an orderly end.
    if tables.run.state != "running" and is_released(run_dir):
        faults += leftovers
    else:
        notes += leftovers
    return Report(faults=faults, notes=notes)


def _check_files(run_dir: Path, tables: Tables) -> Iterator[str]:
    # If run.yaml is not valid YAML, `_verify_once` has reported that already.
    with contextlib.suppress(ConfigError):
        try:
            require_recorded(run_dir, tables.run.configuration)
        except StorageError as error:
            yield str(error)
    if problem := backup_problem(run_dir / BACKUP):
        yield problem


def _check_rows(reader: JournalReader, tables: Tables, run_file: RunFile | None) -> Iterator[str]:
    sums = Sums()
    sums.add_events(reader.all_events())
    sums.add_assignments(reader.all_assignments(), tables.checkpoints)
    yield from _check_policies(tables, sums)
    yield from _check_run(tables.run, sums)
    yield from _check_open(tables)
    yield from check_evolution(tables, sums.generations)
    yield from check_tallies(
        reader.all_tallies(),
        tables=tables,
        matches_of=sums.matches_of,
        run_file=run_file,
        merges=merges(reader.all_events()),
    )
    yield from _check_ratings(tables)
    if sums.has_gap:
        yield "events: sequence numbers have gaps"
    for sequence, donor in sums.donors.items():
        if donor not in tables.policies:
            yield f"event {sequence}: donor {donor!r} is no policy"


def _check_policies(tables: Tables, sums: Sums) -> Iterator[str]:
    trained = sums.trained + sums.adopted
    for policy in tables.policies.values():
        for name, value in policy.hyperparameters.items():
            if not is_known(value):
                yield f"{policy.policy}: {name} is {value}"
        if policy.agent_steps != trained[policy.policy]:
            yield (
                f"{policy.policy}: agent_steps {policy.agent_steps}, but its finished assignments "
                f"add up to {trained[policy.policy]}"
            )
        if problem := _problem_of_current(policy, tables):
            yield f"{policy.policy}: {problem}"
    for row in tables.checkpoints.values():
        owner = tables.policies.get(row.policy)
        if owner is None:
            yield f"{row.key}: {row.policy!r} is no policy"
        # A checkpoint is committed together with its policy's counters, so these are not lower.
        elif row.agent_steps > owner.agent_steps or row.generation > owner.generation:
            yield f"{row.key}: its counters are above those of {row.policy}"


def _problem_of_current(policy: PolicyRow, tables: Tables) -> str | None:
    if policy.checkpoint is None:
        may_have_none = not policy.agent_steps or begins_anew(policy, tables)
        return None if may_have_none else "it has trained, but has no checkpoint"
    row = tables.checkpoints.get(policy.checkpoint)
    if row is None:
        return f"its checkpoint {policy.checkpoint} was never recorded"
    # A quarantined policy retains the key of its damaged checkpoint, as None would mean that it has
    # not trained yet.
    if row.state != "present" and policy.state != "quarantined":
        return f"its checkpoint {policy.checkpoint} is {row.state}"
    return None


def _check_run(run: RunRow, sums: Sums) -> Iterator[str]:
    counters = {
        "agent_steps": (run.agent_steps, sums.adopted.total() + sums.agent_steps),
        "matches": (run.matches, sums.matches),
        "assignments_finished": (run.assignments_finished, sums.finished),
        "evaluation_assignments": (run.evaluation_assignments, sums.evaluation),
        "training_assignments": (run.training_assignments, sums.training),
        "exploits": (run.exploits, len(sums.donors)),
    }
    for name, (counted, added_up) in counters.items():
        if counted != added_up:
            yield f"run: {name} is {counted}, but what was committed adds up to {added_up}"
    # If a number was used twice, a late result could match another assignment.
    if run.next_assignment <= sums.last:
        yield f"run: next_assignment is {run.next_assignment}, but {sums.last} was given out"


def _check_ranges(archives: list[ArchiveRow]) -> Iterator[str]:
    if [row.number for row in archives] != list(range(1, len(archives) + 1)):
        yield "archive: numbers of ranges have gaps"
    # Ranges are archived in order.
    if any(late.file and not early.file for early, late in pairwise(archives)):
        yield "archive: a range has left the journal before an older one"
    left = [row for row in archives if row.file]
    for early, late in pairwise(left):
        for name in (table.name for table in ARCHIVED):
            if getattr(late, name) < getattr(early, name):
                yield f"archive: {name} of range {late.number} end before those of the last one"


def _check_open(tables: Tables) -> Iterator[str]:
    for policy, rows in tables.assignments.by("trained").items():
        if len(rows) > 1:
            yield f"{policy}: trainee of {len(rows)} open assignments"


def _check_ratings(tables: Tables) -> Iterator[str]:
    for row in tables.ratings.values():
        size = len(row.entrants)
        # An empty column means that its numbers are unknown or all zero.
        others = (row.anchor_errors, row.rank_lows, row.rank_highs)
        columns = (row.ratings, row.deviations, *(column or row.ratings for column in others))
        if any(len(column) != size for column in columns):
            yield f"ratings of {row.population}: sizes do not fit {size} entrants"
        if row.num_tallies > tables.num_tallies:
            yield f"ratings of {row.population}: cover {row.num_tallies} tallies that are not there"


def _check_checkpoints(run_dir: Path, tables: Tables, setup: LearnerSetup | None) -> Iterator[str]:
    for row in tables.checkpoints.values():
        # Other checkpoints may have no directory, as retention or a repair has removed it.
        if row.state == "present":
            yield from _compare(run_dir, row, tables, setup, without=frozenset())


def _check_ghosts(run_dir: Path, tables: Tables, setup: LearnerSetup | None) -> Iterator[str]:
    counts = Counter((row.policy, row.agent_steps) for row in tables.ghosts.values())
    for (policy, agent_steps), count in counts.items():
        if count > 1:
            yield f"{policy}: {count} ghosts at {agent_steps} agent steps"
    for row in tables.ghosts.values():
        if row.player != ghost_id(row.policy, agent_steps=row.agent_steps):
            yield f"{row.player}: it is of {row.policy} at {row.agent_steps} agent steps"
        source = tables.checkpoints.get(row.checkpoint)
        if source is None:
            yield f"{row.player}: its checkpoint {row.checkpoint} was never recorded"
        elif source.weights_digest != row.weights_digest:
            yield f"{row.player}: its weights are not those of {row.checkpoint}"
        if row.linked and row.is_present:
            yield from _compare(run_dir, row, tables, setup, without=frozenset({OPTIMIZER}))


def _check_games(tables: Tables, seats: tuple[Seat, ...]) -> Iterator[str]:
    kept = {row.key for row in tables.checkpoints.values() if row.state == "present"}
    kept |= {row.key for row in tables.ghosts.values() if row.is_present}
    for row in tables.games.values():
        named = {len(row.seats), len(row.players), len(row.entrants), len(row.keys)}
        problem = problem_of(row, seats=seats)
        if len(named) > 1:
            yield f"game {row.game} names {len(row.players)} players for {len(row.seats)} seats"
        elif problem is not None:
            yield f"game {row.game} {problem}"
        for key, player in zip(row.keys, row.players, strict=False):
            if row.holds and key and key not in kept and not is_external(player):
                yield f"game {row.game} keeps {key}, which is not there"


def _compare(
    run_dir: Path,
    row: CheckpointRow | GhostRow,
    tables: Tables,
    setup: LearnerSetup | None,
    *,
    without: frozenset[str],
) -> Iterator[str]:
    """Compare every byte of a directory with its row, and its manifest with the run."""
    try:
        manifest = verify_directory(resolve_key(run_dir, row.key), without=without)
        population = population_of(row.policy)
        if setup is not None and population in setup.populations:
            check_manifest(
                manifest,
                environment_digest=setup.spec.digest,
                setup=setup.populations[population],
            )
    except CheckpointError as error:
        yield str(error)
        return
    for name in _facts(row):
        says, recorded = getattr(manifest, name), getattr(row, name)
        if says != recorded:
            yield f"{row.key}: {name} is {says}, but {recorded} was recorded"
    policy = tables.policies.get(row.policy)
    known = {} if policy is None else kinds(policy.hyperparameters)
    for name, kind in kinds(manifest.hyperparameters).items():
        if known.get(name, kind) != kind:
            value = manifest.hyperparameters[name]
            yield (
                f"{row.key}: hyperparameters.{name} must be {known[name].__name__}, as that of "
                f"{row.policy}, got {value!r}"
            )


def _facts(row: CheckpointRow | GhostRow) -> list[str]:
    # The row of a ghost does not repeat the digest and the updates of its checkpoint.
    facts = ["weights_digest", "policy", "agent_steps", "generation"]
    return [*facts, "digest", "learner_updates"] if isinstance(row, CheckpointRow) else facts


def _expected(tables: Tables) -> list[str]:
    """Return notes on unfinished work, which the next resume repeats, and on known damage."""
    notes = [f"{row.player}: not linked yet" for row in tables.ghosts.values() if not row.linked]
    notes += [f"{row.player}: corrupt" for row in tables.ghosts.values() if row.corrupt]
    notes += [f"{row.player}: doomed" for row in tables.ghosts.values() if row.doomed]
    for row in tables.checkpoints.values():
        if row.state in ("doomed", "corrupt"):
            notes.append(f"{row.key}: {row.state}")
    return notes


def _unknown_ghosts(run_dir: Path, tables: Tables) -> Iterator[str]:
    """Yield notes on ghosts that a restored journal does not know. They are no opponents, and
    their directories stay.
    """
    known = {row.key for row in tables.ghosts.values()}
    for key in list_directories(run_dir, "ghosts"):
        if DIRECTORY_NAME.fullmatch(key.rsplit("/", 1)[1]) and key not in known:
            yield f"{key}: a ghost that the journal does not know"


def _leftovers(run_dir: Path, tables: Tables) -> list[str]:
    """Return descriptions of temporary directories and unrecorded checkpoints."""
    keys = [*list_directories(run_dir, "checkpoints"), *list_directories(run_dir, "ghosts")]
    found = [
        f"{key}: temporary directory" for key in keys if TEMPORARY.fullmatch(key.rsplit("/", 1)[1])
    ]
    return found + [f"{key}: not recorded" for key in unrecorded_checkpoints(run_dir, tables)]


BEGINS_ANEW = ("immigrate", "reset", "rewind")
"""Causes of a generation that begins without a checkpoint, although its policy has trained."""

KINDS = ("exploit", "explore")
"""Kinds of pending decisions."""


def check_evolution(
    tables: Tables, removed: Mapping[Entrant, GenerationRow] | None = None
) -> Iterator[str]:
    """Yield faults in generations and in pending decisions of PBT.

    Args:
        tables: Rows of the run.
        removed: Generations whose rows were removed, in order of beginning; None if none were.
    """
    in_training = set(tables.assignments.by("trained"))
    generations: dict[PolicyId, list[GenerationRow]] = {}
    for row in {**(removed or {}), **tables.generations}.values():
        generations.setdefault(row.policy, []).append(row)
    for rows in generations.values():
        # Rows that were removed belong between the remaining rows.
        rows.sort(key=attrgetter("generation"))
    for policy in tables.policies.values():
        for problem in _problems_of_pending(policy, tables, in_training=in_training):
            yield f"{policy.policy}: {problem}"
        for problem in _problems_of_generations(policy, generations.get(policy.policy, [])):
            yield f"{policy.policy}: {problem}"
    for unknown in generations.keys() - tables.policies.keys():
        yield f"generations of {unknown!r}, which is no policy"


def begins_anew(policy: PolicyRow, tables: Tables) -> bool:
    """Return whether a policy has begun a generation with new weights and has no checkpoint yet."""
    row = tables.generations.get(policy.trainee)
    # If the policy had trained since the generation began, it would have a checkpoint.
    is_at_its_begin = row is not None and row.agent_steps_begin == policy.agent_steps
    return row is not None and is_at_its_begin and row.cause in BEGINS_ANEW


def _problems_of_pending(
    policy: PolicyRow, tables: Tables, *, in_training: set[PolicyId]
) -> Iterator[str]:
    pending = policy.pending
    if not pending:
        return
    if pending.get("kind") not in KINDS:
        yield f"its pending decision is of the kind {pending.get('kind')!r}"
    # The decision will replace the weights, so training them is a fault.
    if policy.policy in in_training:
        yield "it is in training, though a decision about it is pending"
    if tables.run.state == "finished":
        yield "a decision about it is pending, though the run is finished"
    if pending.get("kind") != "exploit":
        return
    donor, key = pending.get("donor"), pending.get("checkpoint")
    if donor == policy.policy or donor not in tables.policies:
        yield f"the donor of its pending decision is {donor!r}"
    if key not in tables.checkpoints:
        yield f"the checkpoint of its pending decision, {key}, was never recorded"
    # Retention must not remove it before the decision is carried out (`store.named_by`).
    elif tables.checkpoints[str(key)].state in ("doomed", "deleted"):
        yield f"the checkpoint of its pending decision, {key}, was given up"


def _problems_of_generations(policy: PolicyRow, rows: list[GenerationRow]) -> Iterator[str]:
    numbers = [row.generation for row in rows]
    # Do not build a list of `policy.generation` numbers, as a damaged row may have a huge one.
    is_complete = all(number == index for index, number in enumerate(numbers))
    if len(numbers) != policy.generation + 1 or not is_complete:
        yield f"it is in generation {policy.generation}, but those recorded are {numbers}"
        return
    for row, following in pairwise(rows):
        if row.agent_steps_end != following.agent_steps_begin:
            yield (
                f"{row.entrant} ended at {row.agent_steps_end} agent steps, but the next one began "
                f"at {following.agent_steps_begin}"
            )
    if policy.role == MAIN and any(row.cause == "reset" for row in rows):
        yield "it is a main agent, but was reset"
    last = rows[-1]
    if last.agent_steps_end is not None or last.agent_steps_begin != policy.generation_at:
        yield f"{last.entrant} is recorded otherwise than as lasting since {policy.generation_at}"
    # Values with a schedule change within a generation, so their factors are compared instead.
    names = (last.hyperparameters.keys() | policy.hyperparameters.keys()) - policy.factors.keys()
    if dict(last.factors) != dict(policy.factors) or any(
        last.hyperparameters.get(name) != policy.hyperparameters.get(name) for name in names
    ):
        yield f"{last.entrant} is recorded with other hyperparameters than are in use"
    for row in rows:
        for name, value in (*row.hyperparameters.items(), *row.factors.items()):
            if not is_known(value):
                yield f"{row.entrant}: {name} is {value}"
