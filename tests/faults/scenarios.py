"""What writes to a run directory or an export, as scenarios for `tests.faults.nth`. Torch-free."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from arena.checkpoints.files import TEMPORARY, list_directories
from arena.checkpoints.manifest import MANIFEST, WEIGHTS
from arena.export import directory as export_directory
from arena.export.directory import clean_up, replace_directory
from arena.types import PolicyId, trainee_entrant
from populations.audit.verify import verify_run
from populations.config.run_config import validate_config
from populations.config.run_file import NEXT, RUN_FILE, RunFile, check_resume, with_config
from populations.controller import result_merging
from populations.controller.evolution import curriculum
from populations.controller.evolution.generations import first_generations
from populations.controller.server.run_directory import (
    OpenRun,
    clear_run,
    create_run,
    has_run,
    make_run_directory,
    settle,
)
from populations.controller.state.events import Now
from populations.league.lineage import REMOVED_KINDS, History
from populations.records.aggregates import Row
from populations.records.rows import (
    AssignmentRow,
    Deletion,
    EventRow,
    GenerationRow,
    Json,
    PolicyRow,
    RunRow,
)
from populations.storage.archive import ARCHIVE, remove_unnamed
from populations.storage.backup import roll_back
from populations.storage.database import BACKUP, JOURNAL, SCHEMA_VERSION
from populations.storage.journal import Journal, JournalReader
from populations.storage.recovery import recover
from populations.storage.status import read_status, write_status
from populations.storage.store import link_ghosts, remove_doomed
from tests.faults.damage import make_damaged_run, repair, repaired
from tests.faults.nth import Scenario
from tests.faults.older import make_older_run, migrate, settled, version_of
from tests.populations.small_run import SmallRun, duel_run_file
from tests.populations.storage.retained import retained
from tools.pin import pin_player
from tools.rewind import rewind_policy

P0, P1 = PolicyId("player/p000"), PolicyId("player/p001")


class ReopenedRun(SmallRun):
    """A small run that is there already; what is open in it is gone on with."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.run_file = RunFile.load(run_dir / RUN_FILE)
        self.journal = Journal.open(run_dir / JOURNAL)

    def opened(self, policy: PolicyId) -> AssignmentRow:
        rows = self.tables.assignments.values()
        return next(iter(rows), None) or SmallRun.opened(self, policy)


@contextmanager
def reopened(run_dir: Path) -> Iterator[ReopenedRun]:
    """The run, closed afterwards."""
    run = ReopenedRun(run_dir)
    with run.journal:
        yield run


def make_small_run(run_dir: Path, run_file: RunFile | None = None) -> None:
    """Two policies with three checkpoints each, and a ghost."""
    run = SmallRun(run_dir, run_file)
    with run.journal:
        run.put(structs.replace(run.tables.run, state="running"))
        run.snapshot(run.checkpoints_of(P0)[0])


def recovered(run_dir: Path) -> str:
    """Recover, hold every invariant against the directory, and say what the league knows."""
    with Journal.open(run_dir / JOURNAL) as journal:
        rows = recover(run_dir, journal.load(), utc="now")
        if rows:
            journal.commit(rows)
        tables = journal.load()
    report = verify_run(run_dir)
    assert report.faults == []
    assert [note for note in report.notes if "corrupt" not in note] == []
    entries = [*list_directories(run_dir, "checkpoints"), *list_directories(run_dir, "ghosts")]
    assert not [key for key in entries if TEMPORARY.fullmatch(key.rsplit("/", 1)[1])]
    assert not list(run_dir.glob(".tmp-*"))
    run = tables.run
    known = (
        [structs.replace(row, pending={}) for row in tables.policies.values()],
        list(tables.checkpoints.values()),
        list(tables.ghosts.values()),
        (run.agent_steps, run.matches, run.assignments_finished, run.exploits, tables.num_tallies),
    )
    return repr(known)


def train(run_dir: Path) -> None:
    """Carry out an assignment: publish, and record all that follows."""
    with reopened(run_dir) as run:
        run.train(P0)


def snapshot(run_dir: Path) -> None:
    """Decide on a ghost, make its directory, note that it is there."""
    with reopened(run_dir) as run:
        newest = run.checkpoints_of(P1)[-1]
        run.snapshot(newest, linked=False)
        unlinked = [row for row in run.tables.ghosts.values() if not row.linked]
        for player in link_ghosts(run_dir, unlinked)[0]:
            run.put(structs.replace(run.tables.ghosts[player], linked=True))


def exploit(run_dir: Path) -> None:
    """Decide who copies whom; then, with explored hyperparameters, do it."""
    with reopened(run_dir) as run:
        donor, copier = run.tables.policies[P1], run.tables.policies[P0]
        pending: dict[str, Json] = {"kind": "exploit", "donor": P1, "checkpoint": donor.checkpoint}
        run.put(structs.replace(copier, pending=pending))
        tables = run.tables
        sequence, number = tables.num_events + 1, copier.generation + 1
        explored = {**donor.hyperparameters, "learning_rate": 1e-3}
        ended = tables.generations[trainee_entrant(P0, generation=copier.generation)]
        run.put(
            structs.replace(
                copier,
                checkpoint=donor.checkpoint,
                hyperparameters=explored,
                generation=number,
                generation_at=copier.agent_steps,
            ),
            structs.replace(ended, agent_steps_end=copier.agent_steps),
            structs.replace(
                ended,
                entrant=trainee_entrant(P0, generation=number),
                generation=number,
                cause="exploit",
                hyperparameters=explored,
                agent_steps_begin=copier.agent_steps,
            ),
            EventRow(
                sequence=sequence, time="now", kind="exploited", subject=P0, data={"donor": P1}
            ),
            structs.replace(tables.run, exploits=tables.run.exploits + 1),
        )


def make_recorded_run(run_dir: Path) -> None:
    """A small run with generations, and an open assignment of the first policy."""
    make_small_run(run_dir)
    with reopened(run_dir) as run:
        policies = run.tables.policies.values()
        run.put(*first_generations(structs.replace(policy, agent_steps=0) for policy in policies))
        run.opened(P0)


def rewind(run_dir: Path) -> None:
    """Put a policy back on its second checkpoint, unless it is there."""
    with reopened(run_dir) as run:
        if run.tables.policies[P0].generation:
            return
    rewind_policy(run_dir, f"{P0}@200", utc="now")


def pin(run_dir: Path) -> None:
    """Pin a ghost together with its checkpoint."""
    pin_player(run_dir, f"{P0}@100", pinned=True, utc="now")


def change_configuration(run_dir: Path) -> None:
    """Go on with another run.yaml, in which a start value is new."""
    settle(run_dir)
    old = RunFile.load(run_dir / RUN_FILE)
    overrides = ["populations.player.hyperparameters.learning_rate=0.001", "checkpoints.keep=7"]
    new, changes = check_resume(old, config=None, overrides=overrides)
    changed = with_config(old, new) if changes else None
    with OpenRun(run_dir, with_sinks=False, changed=changed) as run:
        run.reconfigure(changes, utc="now")


LESSONS = [{"kwargs": {"size": 3}, "until": {"agent_steps": 200}}, {"kwargs": {"size": 9}}]


def make_taught_run(run_dir: Path) -> None:
    """A small run in its first lesson, which all have learned."""
    old = duel_run_file()
    document = old.config.model_dump(mode="json")
    document["environment"]["curriculum"] = LESSONS
    config = validate_config(document)
    spec = replace(old.spec, kwargs=config.kwargs_of_matches, lessons=config.lessons)
    make_small_run(run_dir, replace(old, config=config, spec=spec))


def begin_lesson(run_dir: Path) -> None:
    """Begin the next lesson, unless it was begun."""
    with OpenRun(run_dir, with_sinks=False) as run:
        tx = run.state.begin(Now(monotonic_s=1.0, utc="now"))
        curriculum.advance(run.state.settings, run.state.indexes, run.state.phase, tx)
        run.journal.commit(tx.rows)


def taught(run_dir: Path) -> str:
    """Recover, and say which lesson it is: the event is there if and only if it was begun."""
    with JournalReader(run_dir / JOURNAL) as reader:
        began = reader.events(kinds=[curriculum.LESSON_BEGAN])
    with reopened(run_dir) as run:
        lesson = run.tables.run.lesson
    assert [event.subject for event in began] == ["2"] * lesson
    return f"{lesson} {recovered(run_dir)}"


def reconfigured(run_dir: Path) -> str:
    """Recover, and say what the league knows and run.yaml says: both are of one side."""
    settle(run_dir)
    assert not (run_dir / NEXT).exists()
    config = RunFile.load(run_dir / RUN_FILE).config
    with JournalReader(run_dir / JOURNAL) as reader:
        changed = reader.events(kinds=["configuration_changed"])
    is_new = config.checkpoints.keep == 7
    assert len(changed) == 2 * is_new
    rate = config.populations["player"].hyperparameters["learning_rate"]
    with reopened(run_dir) as run:
        rates = {row.hyperparameters["learning_rate"] for row in run.tables.policies.values()}
    assert rates == {rate}
    return f"{rate} {recovered(run_dir)}"


def retain(run_dir: Path) -> None:
    """Decide what nobody needs, remove it, note that it is gone."""
    with reopened(run_dir) as run:
        tables = run.tables
        keys = retained(
            policies=tables.policies,
            checkpoints=tables.checkpoints,
            ghosts=tables.ghosts,
            assignments=tables.assignments,
            keep=2,
            milestones_every_agent_steps=None,
        )
        run.put(*(structs.replace(tables.checkpoints[key], state="doomed") for key in keys))
        for key in remove_doomed(run_dir, keys):
            run.put(structs.replace(tables.checkpoints[key], state="deleted"))


def thin(run_dir: Path) -> None:
    """Decide that a ghost goes, remove it, forget it."""
    with reopened(run_dir) as run:
        (ghost,) = run.tables.ghosts.values()
        ghost = structs.replace(ghost, doomed=True)
        run.put(ghost)
        for _ in remove_doomed(run_dir, [ghost.key]):
            run.put(Deletion(row=ghost))


def make_full_run(run_dir: Path) -> None:
    """A small run with weights that are gone but were evaluated, and many generations."""
    make_small_run(run_dir)
    with reopened(run_dir) as run:
        first, second, newest = run.checkpoints_of(P1)
        (ghost,) = run.tables.ghosts.values()
        for one, other in ((first, ghost), (first, second), (second, ghost), (newest, ghost)):
            run.evaluate(one.weights_digest, other.weights_digest)
        for key in remove_doomed(run_dir, [first.key, second.key]):
            run.put(structs.replace(run.tables.checkpoints[key], state="deleted"))
        policies = list(run.tables.policies.values())
        rows = first_generations(structs.replace(policy, agent_steps=0) for policy in policies)
        run.put(*rows)
        for policy, begin in zip(policies, rows, strict=True):
            run.put(*_explored(policy, begin))


GENERATIONS = 14


def _explored(policy: PolicyRow, begin: GenerationRow) -> Iterator[Row]:
    """Generations that a policy went through without training."""
    steps = policy.agent_steps
    yield structs.replace(begin, agent_steps_end=steps)
    for number in range(1, GENERATIONS):
        is_last = number == GENERATIONS - 1
        yield structs.replace(
            begin,
            entrant=trainee_entrant(policy.policy, generation=number),
            generation=number,
            cause="explore",
            parent=trainee_entrant(policy.policy, generation=number - 1),
            agent_steps_begin=steps,
            agent_steps_end=None if is_last else steps,
        )
    yield structs.replace(policy, generation=GENERATIONS - 1, generation_at=steps)


def merge(run_dir: Path) -> None:
    """Merge what is gone, and remove rows that nothing refers to."""
    with pytest.MonkeyPatch.context() as patch, OpenRun(run_dir, with_sinks=False) as run:
        for module, name, value in (
            # Pools have at least 16 ghosts, so the limit is replaced.
            (result_merging, "_is_full", lambda state, population: True),
            (result_merging, "BATCH", 1),
            (result_merging, "MAX_ENTRANTS", 0),
            (result_merging, "SLACK", 0),
            (result_merging, "GENERATIONS_BATCH", 1),
            (result_merging, "KEPT_GENERATIONS", 6),
        ):
            patch.setattr(module, name, value)
        run.state.league.recent.clear()
        tx = run.state.begin(Now(monotonic_s=1.0, utc="now"))
        result_merging.merge(run.state.settings, run.state.indexes, run.state.phase, tx)
        run.journal.commit(tx.rows)


def merged(run_dir: Path) -> str:
    """Recover, and count what is there, and what events say of the rest: nothing is lost."""
    with JournalReader(run_dir / JOURNAL) as reader:
        tables = reader.load()
        events = reader.events(kinds=["results_merged", *REMOVED_KINDS])
    history = History.of(tables, events)
    assert len(history.generations) == 2 * GENERATIONS
    # There are four evaluations of four matches with two players each.
    assert sum(row.matches for row in tables.records.values()) == 32
    kinds = [event.kind for event in events]
    counts = len(tables.generations), len(tables.records), len(tables.pairs)
    return f"{kinds} {counts} {recovered(run_dir)}"


def make_crashed_run(run_dir: Path) -> None:
    """A run with a piece of everything that a crash can leave behind."""
    make_small_run(run_dir)
    with reopened(run_dir) as run:
        oldest, middle, newest = run.checkpoints_of(P0)
        run.snapshot(middle, linked=False)
        run.put(structs.replace(oldest, state="doomed"))
        run.train(P1)
        (run_dir / newest.key / WEIGHTS).write_bytes(b"damaged")
        parent = (run_dir / newest.key).parent
        (parent / f".tmp-{'0' * 32}").mkdir()
        (parent / f".tmp-{'0' * 32}" / WEIGHTS).write_bytes(b"w")
        (parent / "000000000999-0123abcd").mkdir()


def recover_run(run_dir: Path) -> None:
    """What happens at the start of a resumed run."""
    with Journal.open(run_dir / JOURNAL) as journal:
        journal.commit(recover(run_dir, journal.load(), utc="now"))


def make_backed_up_run(run_dir: Path) -> None:
    """A run that has gone on since its backup."""
    make_small_run(run_dir)
    with reopened(run_dir) as run:
        run.journal.backup(run_dir / BACKUP)
        run.train(P0)


def make_old_backup(run_dir: Path) -> None:
    """A run whose backup is of a release with another table."""
    make_backed_up_run(run_dir)
    with closing(sqlite3.connect(run_dir / BACKUP)) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION - 1}")


def back_up(run_dir: Path) -> None:
    """Bring the backup up to date."""
    with reopened(run_dir) as run:
        run.journal.backup(run_dir / BACKUP)


def backed_up(run_dir: Path) -> str:
    """What the backup holds; the run itself is as it was."""
    recovered(run_dir)
    # The rollback is done as a repair does it.
    roll_back(run_dir / BACKUP)
    if (version := version_of(run_dir / BACKUP)) != SCHEMA_VERSION:
        return f"a backup of schema {version}"
    with JournalReader(run_dir / BACKUP) as reader:
        reader.integrity_check()
        return repr(reader.load())


def make_eventful_run(run_dir: Path) -> None:
    """A small run with an event and an open assignment, of which nothing has left the journal."""
    make_small_run(run_dir)
    with reopened(run_dir) as run:
        run.note("champion", P0, population="player")
        run.opened(P0)


def archive(run_dir: Path) -> None:
    """Let details leave the journal."""
    with reopened(run_dir) as run:
        run.archive()


def archived(run_dir: Path) -> str:
    """How many files the journal names; what a reader finds is the same in any case."""
    with reopened(run_dir) as run:
        archives = run.journal.archives()
        remove_unnamed(run_dir, archives)
    state = recovered(run_dir)
    files = [path.name for path in (run_dir / ARCHIVE).glob("*")]
    assert sorted(files) == [row.file for row in archives]
    with JournalReader(run_dir / JOURNAL) as reader:
        details = reader.events(), reader.assignments(), reader.tallies()
    assert [len(rows) for rows in details] == [1, 7, 6]
    return repr((len(archives), state, details))


def make_sparse_run(run_dir: Path) -> None:
    """A small run whose journal is mostly of pages without rows."""
    make_small_run(run_dir)
    with reopened(run_dir) as run:
        for _ in range(20):
            run.note("quarantined", P0, reason="x" * 3000)
        run.archive()


def shrink(run_dir: Path) -> None:
    """Give the pages back."""
    with reopened(run_dir) as run:
        while run.journal.shrink(pages=3):
            continue


def make_failed_launch(run_dir: Path) -> None:
    """A launch that was cut off before its run.yaml."""
    Journal.create(run_dir / JOURNAL, [RunRow(run="r")]).close()


def create(run_dir: Path) -> None:
    """Make a new run, as `arena launch --force` does."""
    make_run_directory(run_dir)
    if has_run(run_dir):
        clear_run(run_dir)
    weights = {"player": {WEIGHTS: b"w", MANIFEST: b"{}"}}
    create_run(run_dir, duel_run_file(), initial_weights=weights, utc="now")


def created(run_dir: Path) -> str:
    """A run is there when its run.yaml is, and then it is whole."""
    if not (run_dir / RUN_FILE).exists():
        return "none"
    assert verify_run(run_dir).faults == []
    assert (run_dir / "imports" / "player" / WEIGHTS).read_bytes() == b"w"
    return "whole"


OLD = {"card.json": b"old", "champion.py": b"old player"}
NEW = {"card.json": b"new", "members/first/policy.onnx": b"graph", "policy.onnx": b"graph"}


def make_export(directory: Path) -> None:
    """An export of some time ago."""
    replace_directory(directory / "champion", OLD)
    leftover = directory / f".champion.new-{'0' * 16}"
    leftover.mkdir()
    (leftover / "card.json").write_bytes(b"half of")


def export(directory: Path) -> None:
    """Replace it."""
    replace_directory(directory / "champion", NEW)


def export_in_two_steps(directory: Path) -> None:
    """Replace it where two names cannot be swapped."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export_directory, "_exchange", lambda first, second: False)
        export(directory)


def exported(directory: Path) -> str:
    """What is in the export's place, once what was left beside it is gone."""
    clean_up(directory / "champion")
    assert [path.name for path in directory.iterdir()] == ["champion"]
    files = [path for path in sorted((directory / "champion").rglob("*")) if path.is_file()]
    return repr([(str(path.relative_to(directory)), path.read_bytes()) for path in files])


SCENARIOS: dict[str, Scenario] = {
    "publication": Scenario(seed=make_small_run, act=train, settle=recovered),
    "ghost": Scenario(seed=make_small_run, act=snapshot, settle=recovered),
    "exploitation": Scenario(seed=make_small_run, act=exploit, settle=recovered),
    "retention": Scenario(seed=make_small_run, act=retain, settle=recovered),
    "thinning": Scenario(seed=make_small_run, act=thin, settle=recovered),
    "merging": Scenario(seed=make_full_run, act=merge, settle=merged),
    "rewinding": Scenario(seed=make_recorded_run, act=rewind, settle=recovered),
    "pinning": Scenario(seed=make_recorded_run, act=pin, settle=recovered),
    "reconfiguration": Scenario(
        seed=make_recorded_run, act=change_configuration, settle=reconfigured
    ),
    "lesson": Scenario(seed=make_taught_run, act=begin_lesson, settle=taught),
    "recovery": Scenario(seed=make_crashed_run, act=recover_run, settle=recovered),
    "backup": Scenario(seed=make_backed_up_run, act=back_up, settle=backed_up),
    "backup_anew": Scenario(seed=make_old_backup, act=back_up, settle=backed_up),
    "archiving": Scenario(seed=make_eventful_run, act=archive, settle=archived),
    "shrinking": Scenario(seed=make_sparse_run, act=shrink, settle=recovered),
    "creation": Scenario(seed=make_failed_launch, act=create, settle=created),
    "repair": Scenario(seed=make_damaged_run, act=repair, settle=repaired),
    "migration": Scenario(seed=make_older_run, act=migrate, settle=settled),
    "export": Scenario(seed=make_export, act=export, settle=exported),
    "export_in_two_steps": Scenario(seed=make_export, act=export_in_two_steps, settle=exported),
    "status": Scenario(
        seed=lambda run_dir: write_status(run_dir, {"epoch": 1}),
        act=lambda run_dir: write_status(run_dir, {"epoch": 2}),
        settle=lambda run_dir: repr(read_status(run_dir)),
    ),
}
