"""Each test breaks one invariant of a sound run in one place, and expects to hear of it."""

from __future__ import annotations

import copy
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from msgspec.structs import replace

from arena.checkpoints.files import encode_manifest, read_manifest
from arena.checkpoints.manifest import MANIFEST, OPTIMIZER, WEIGHTS
from arena.types import AssignmentId, Digest, Entrant, PairScore, PlayerId, PolicyId
from populations.audit.verify import begins_anew, check_evolution, verify_run
from populations.records.rows import GenerationRow, Json, PolicyRow
from populations.records.tables import ASSIGNMENTS, Table, Tables
from populations.storage.lock import LOCK, RunLock
from populations.storage.recovery import recover
from tests.populations.controller.simulated import DUEL, by_rate, make_world
from tests.populations.rows import make_ratings
from tests.populations.small_run import SmallRun
from tests.support import exit_code, flip

P0 = PolicyId("player/p000")


def tally_with(small_run: SmallRun, **changes: int) -> None:
    row = small_run.tallies()[0]
    pair = replace(row.tally.pairs[0], **changes)
    small_run.put(replace(row, tally=replace(row.tally, pairs=(pair,))))


def newest(small_run: SmallRun) -> Path:
    return small_run.run_dir / small_run.checkpoints_of(P0)[-1].key


def skip_a_tally(small_run: SmallRun) -> None:
    row = small_run.tallies()[-1]
    small_run.put(replace(row, sequence=row.sequence + 2))


def open_twice(small_run: SmallRun) -> None:
    small_run.opened(P0)
    small_run.opened(P0)


def ghost_of_other_weights(small_run: SmallRun) -> None:
    first, second, _ = small_run.checkpoints_of(P0)
    ghost = small_run.snapshot(first)
    small_run.put(replace(ghost, checkpoint=second.key))


def two_ghosts_at_one_count(small_run: SmallRun) -> None:
    ghost = small_run.snapshot(small_run.checkpoints_of(P0)[0])
    small_run.put(replace(ghost, player=PlayerId("player/p000@0")))


def ghost_without_directory(small_run: SmallRun) -> None:
    ghost = small_run.snapshot(small_run.checkpoints_of(P0)[0])
    shutil.rmtree(small_run.run_dir / ghost.key)


def orphan_tally(small_run: SmallRun) -> None:
    row = small_run.tallies()[-1]
    small_run.put(replace(row, sequence=row.sequence + 1, assignment_id=AssignmentId(999)))


def change_ratings(**changes: object) -> Callable[[SmallRun], None]:
    row = make_ratings(entrants=(Entrant("bot:random"),), ratings=(0.0,), deviations=(0.0,))
    return lambda run: run.put(replace(row, **changes))


def change_policy(**changes: object) -> Callable[[SmallRun], None]:
    return lambda run: run.put(replace(run.tables.policies[P0], **changes))


def change_run(**changes: object) -> Callable[[SmallRun], None]:
    return lambda run: run.put(replace(run.tables.run, **changes))


def change_record(**changes: object) -> Callable[[SmallRun], None]:
    def change(run: SmallRun) -> None:
        run.evaluate("a" * 64, "bot:random")
        row = run.tables.records["player", Entrant("bot:random")]
        run.put(replace(row, **changes))

    return change


def change_pair(kind: str, **changes: object) -> Callable[[SmallRun], None]:
    def change(run: SmallRun) -> None:
        run.evaluate("a" * 64, "bot:random")
        row = next(row for row in run.tables.pairs.values() if row.kind == kind)
        run.put(replace(row, **changes))

    return change


def lose_a_row(table: str) -> Callable[[SmallRun], None]:
    def change(run: SmallRun) -> None:
        run.evaluate("a" * 64, "bot:random")
        run.journal._connection.execute(f"DELETE FROM {table} WHERE rowid = 1")

    return change


def change_checkpoint(**changes: object) -> Callable[[SmallRun], None]:
    return lambda run: run.put(replace(run.checkpoints_of(P0)[-1], **changes))


def of_another_environment(run: SmallRun) -> None:
    """Seal a manifest of another environment."""
    manifest = replace(read_manifest(newest(run)), environment_digest=Digest("0" * 64))
    (newest(run) / MANIFEST).write_bytes(encode_manifest(manifest))


BREAKS: dict[str, tuple[Callable[[SmallRun], object], str]] = {
    "flipped bit": (lambda run: flip(newest(run) / WEIGHTS), "sha256"),
    "lost optimizer": (lambda run: (newest(run) / OPTIMIZER).unlink(), "missing"),
    "lost checkpoint": (lambda run: shutil.rmtree(newest(run)), "no checkpoint"),
    "other digest": (change_checkpoint(digest="0" * 64), "digest is"),
    "other environment": (of_another_environment, "its environment_digest is 0"),
    "other generation": (change_checkpoint(generation=5), "generation is"),
    "checkpoint from the future": (change_checkpoint(agent_steps=10**6), "above"),
    "doomed in use": (change_checkpoint(state="doomed"), "is doomed"),
    "steps not trained": (change_policy(agent_steps=301), "add up to 300"),
    "unrecorded checkpoint in use": (change_policy(checkpoint="a/b"), "never recorded"),
    "no checkpoint": (change_policy(checkpoint=None), "has no checkpoint"),
    "run's steps": (change_run(agent_steps=601), "agent_steps is 601"),
    "run's matches": (change_run(matches=29), "adds up to 30"),
    "run's assignments": (change_run(assignments_finished=5), "adds up to 6"),
    "run's exploits": (change_run(exploits=1), "exploits is 1"),
    "assignment given out twice": (change_run(next_assignment=6), "next_assignment is 6"),
    "match counted twice": (lambda run: tally_with(run, wins=3), r"\(3, 1, 2\) of 5"),
    "negative wins": (lambda run: tally_with(run, wins=-1, draws=4), r">= 0 .*pairs\[0\]\.wins"),
    "seat that is not there": (lambda run: tally_with(run, second=2), "seats 0 and 2 of 2"),
    "gap": (skip_a_tally, "gaps"),
    "orphan tally": (orphan_tally, "never decided"),
    "record": (change_record(wins=3), "bot:random: wins is 3, but its tallies give 2"),
    "record's returns": (change_record(return_sum=0.5), "return_sum is 0.5"),
    "unknown record": (change_record(population="prey"), "record prey .*no tally"),
    "lost record": (lose_a_row("records"), f"record player {'a' * 64}: missing"),
    "pair": (change_pair("evaluate", losses=1.0), "pair evaluate .* 0 1: losses is 1.0"),
    "faded pair": (change_pair("train", wins=2.5), "pair train .*: wins is 2.5"),
    "pair's returns": (change_pair("train", second_return_sum=9.0), "second_return_sum is 9.0"),
    "pair that never met": (change_pair("train", first_seat=0), "0 0: there is no tally"),
    "lost pair": (lose_a_row("pairs"), "pair train .*: missing"),
    "two leases": (open_twice, "2 open assignments"),
    "ghost of other weights": (ghost_of_other_weights, "not those of"),
    "two ghosts": (two_ghosts_at_one_count, "2 ghosts at 100"),
    "lost ghost": (ghost_without_directory, "no checkpoint"),
    "unknown donor": (lambda run: run.note("exploited", P0, donor="player/p9"), "player/p9"),
    "ratings": (change_ratings(entrants=()), "sizes do not fit 0"),
    "deviations": (change_ratings(deviations=()), "sizes do not fit 1"),
    "ranks": (change_ratings(rank_lows=(1,), rank_highs=(1, 2)), "sizes do not fit 1"),
    "run.yaml": (lambda run: (run.run_dir / "run.yaml").write_text("a: [1"), "run.yaml"),
    "no run.yaml": (lambda run: (run.run_dir / "run.yaml").unlink(), "run.yaml"),
}


def test_a_sound_run_has_no_faults(small_run: SmallRun) -> None:
    small_run.snapshot(small_run.checkpoints_of(P0)[1])
    small_run.opened(P0)
    for _ in range(2):
        small_run.evaluate("a" * 64, "bot:random")
    change_ratings()(small_run)
    report = verify_run(small_run.run_dir)
    assert (report.faults, report.notes) == ([], [])


@pytest.mark.parametrize("what", BREAKS)
def test_a_broken_invariant_is_found(small_run: SmallRun, what: str) -> None:
    break_it, text = BREAKS[what]
    break_it(small_run)
    faults = "\n".join(verify_run(small_run.run_dir).faults)
    assert re.search(text, faults)


def test_details_that_have_left_the_journal_add_up(small_run: SmallRun) -> None:
    small_run.note("quarantined", P0)
    small_run.archive()
    small_run.train(P0)
    small_run.note("explored", P0)
    assert verify_run(small_run.run_dir).faults == []
    small_run.archive()
    assert small_run.tables.num_events == 2
    assert small_run.journal._connection.execute("SELECT count(*) FROM tallies").fetchone() == (0,)
    assert verify_run(small_run.run_dir).faults == []


def lost_file(path: Path) -> None:
    path.unlink()


def cut_file(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-8])


def other_file(path: Path) -> None:
    """Sound, with what the journal expects, but not the bytes that were written."""
    text = zstandard.ZstdDecompressor().stream_reader(path.read_bytes()).read()
    path.write_bytes(zstandard.ZstdCompressor(level=1).compress(text + b" "))


@pytest.mark.parametrize(
    ("damage", "expected"),
    [(lost_file, "No such file"), (cut_file, "cut off"), (other_file, "sha256")],
)
def test_a_damaged_archive_is_a_fault(
    small_run: SmallRun, damage: Callable[[Path], None], expected: str
) -> None:
    small_run.archive()
    damage(small_run.run_dir / "archive" / "000001.jsonl.zst")
    (fault,) = verify_run(small_run.run_dir).faults
    assert "000001.jsonl.zst" in fault
    assert expected in fault


def ranges_with_a_gap(small_run: SmallRun) -> None:
    small_run.put(replace(small_run.archive(), number=3))


def ranges_out_of_order(small_run: SmallRun) -> None:
    row = small_run.archive()
    small_run.put(replace(row, file="", digest=""), replace(row, number=2))


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [(ranges_with_a_gap, "have gaps"), (ranges_out_of_order, "before an older one")],
)
def test_ranges_of_details_are_in_order(
    small_run: SmallRun, spoil: Callable[[SmallRun], None], expected: str
) -> None:
    spoil(small_run)
    assert any(expected in fault for fault in verify_run(small_run.run_dir).faults)


def test_a_damaged_journal_is_one_fault(small_run: SmallRun) -> None:
    small_run.journal.close()
    path = small_run.run_dir / "journal.db"
    data = bytearray(path.read_bytes())
    data[4096 * 2 : 4096 * 2 + 8] = b"\xff" * 8
    path.write_bytes(data)
    (fault,) = verify_run(small_run.run_dir).faults
    assert str(path) in fault


def test_an_empty_directory_is_no_run(tmp_path: Path) -> None:
    report = verify_run(tmp_path)
    assert len(report.faults) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("state", ["running", "stopped"])
def test_leftovers_are_notes_until_the_run_has_ended(small_run: SmallRun, state: str) -> None:
    change_run(state=state)(small_run)
    directory = newest(small_run)
    shutil.copytree(directory, directory.with_name(f".tmp-{'0' * 32}"))
    shutil.copytree(directory, directory.with_name("000000000999-0123abcd"))
    report = verify_run(small_run.run_dir)
    found, other = report.notes, report.faults
    if state == "stopped":
        found, other = other, found
    assert len(found) == 2
    assert other == []
    small_run.put(*recover(small_run.run_dir, small_run.tables))
    assert verify_run(small_run.run_dir).faults == []


def test_leftovers_of_a_controller_that_was_killed_at_the_very_end_are_notes(
    small_run: SmallRun,
) -> None:
    change_run(state="finished")(small_run)
    (small_run.run_dir / "populations/player/p000/checkpoints" / f".tmp-{'0' * 32}").mkdir()
    # A killed process leaves its id in the lock file.
    (small_run.run_dir / LOCK).write_text("12345\n")
    report = verify_run(small_run.run_dir)
    assert report.faults == []
    assert [note for note in report.notes if "temporary directory" in note]
    RunLock(small_run.run_dir).release()
    assert [fault for fault in verify_run(small_run.run_dir).faults if "temporary" in fault]


def test_a_recovered_run_is_sound_and_says_what_it_lost(small_run: SmallRun) -> None:
    for row in small_run.checkpoints_of(P0):
        flip(small_run.run_dir / row.key / WEIGHTS)
    small_run.put(*recover(small_run.run_dir, small_run.tables))
    report = verify_run(small_run.run_dir)
    assert report.faults == []
    assert len([note for note in report.notes if note.endswith("corrupt")]) == 3


def test_what_a_running_controller_puts_right_meanwhile_is_no_fault(
    small_run: SmallRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second look finds the checkpoint recorded as doomed."""
    from populations.audit import verify

    first = small_run.checkpoints_of(P0)[0]
    shutil.rmtree(small_run.run_dir / first.key)
    looks = 0
    look = verify._verify_once

    def look_and_go_on(run_dir: Path) -> verify.Report:
        nonlocal looks
        looks += 1
        report = look(run_dir)
        small_run.put(replace(first, state="doomed"))
        return report

    monkeypatch.setattr(verify, "_verify_once", look_and_go_on)
    with RunLock(small_run.run_dir):
        assert verify_run(small_run.run_dir).faults == []
    assert looks == 2


def test_a_pair_of_seats_is_in_order(small_run: SmallRun) -> None:
    row = small_run.tallies()[0]
    pair = PairScore(first=1, second=0, wins=2, draws=1, losses=2)
    small_run.put(replace(row, tally=replace(row.tally, pairs=(pair,))))
    assert "seats 1 and 0" in verify_run(small_run.run_dir).faults[0]


def test_the_command_lists_faults_and_says_so_by_its_exit_code(
    small_run: SmallRun, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> tuple[int, str]:
        return exit_code("verify", *arguments), capsys.readouterr().out

    code, text = run(str(small_run.run_dir), "--json")
    document = json.loads(text)
    assert (code, document["schema"], document["faults"], document["notes"]) == (0, 1, [], [])
    change_run(matches=29)(small_run)
    code, text = run(str(small_run.run_dir))
    assert code == 5
    assert "fault: run: matches is 29" in text
    assert run(str(small_run.run_dir / "nothing"))[0] == 2


P1, P2 = PolicyId("player/p001"), PolicyId("player/p002")


@pytest.fixture(scope="module")
def sound() -> Tables:
    """A run in which policies exploited, explored and immigrated, stopped while one decides."""
    world = make_world({**DUEL, "pbt": {**DUEL["pbt"], "reference": False}})  # type: ignore[dict-item]
    world.learning = by_rate
    world.join()
    world.steps(84)
    assert world.events("exploited")
    return world.state.tables


def policy(tables: Tables, name: PolicyId, **changes: object) -> None:
    tables.policies[name] = replace(tables.policies[name], **changes)


def last(tables: Tables, name: PolicyId) -> GenerationRow:
    row: PolicyRow = tables.policies[name]
    return tables.generations[Entrant(f"{name}#{row.generation}")]


def pending(tables: Tables, **changes: Json) -> dict[str, Json]:
    checkpoint = next(row for row in tables.checkpoints.values() if row.state == "present")
    return {"kind": "exploit", "donor": P2, "checkpoint": checkpoint.key, **changes}


def gave_up(tables: Tables) -> None:
    key = str(pending(tables)["checkpoint"])
    tables.checkpoints[key] = replace(tables.checkpoints[key], state="deleted")
    policy(tables, P1, pending=pending(tables, checkpoint=key))


def test_a_run_as_the_controller_leaves_it_is_sound(sound: Tables) -> None:
    assert list(check_evolution(sound)) == []
    tables = copy.copy(sound)
    tables.policies = sound.policies.copy()
    tables.assignments = Table(ASSIGNMENTS)
    policy(tables, P1, pending=pending(tables))
    assert list(check_evolution(tables)) == []


@pytest.mark.parametrize(
    ("tamper", "fault"),
    [
        (lambda t: policy(t, P1, generation=99), "it is in generation 99, but those recorded"),
        (lambda t: t.generations.__delitem__(last(t, P1).entrant), "but those recorded are"),
        (lambda t: policy(t, P1, generation_at=-5), "otherwise than as lasting since -5"),
        (lambda t: policy(t, P1, hyperparameters={}), "with other hyperparameters than are in use"),
        (lambda t: policy(t, P1, pending=pending(t, kind="swap")), "is of the kind 'swap'"),
        (lambda t: policy(t, P1, pending=pending(t, donor=P1)), f"decision is '{P1}'"),
        (lambda t: policy(t, P1, pending=pending(t, donor="nobody")), "decision is 'nobody'"),
        (lambda t: policy(t, P1, pending=pending(t, checkpoint="x")), "x, was never recorded"),
        (gave_up, "was given up"),
    ],
)  # fmt: skip
def test_what_is_broken_is_named(
    sound: Tables, tamper: Callable[[Tables], object], fault: str
) -> None:
    tables = copy.copy(sound)
    for name in ("policies", "generations", "checkpoints"):
        setattr(tables, name, getattr(sound, name).copy())
    tables.assignments = Table(ASSIGNMENTS)
    tamper(tables)
    faults = list(check_evolution(tables))
    assert any(fault in found for found in faults), faults


def test_a_gap_between_two_generations_is_a_fault(sound: Tables) -> None:
    row = next(row for row in sound.generations.values() if row.agent_steps_end is not None)
    tables = copy.copy(sound)
    tables.generations = sound.generations.copy()
    tables.generations[row.entrant] = replace(row, agent_steps_end=1)
    assert any(f"{row.entrant} ended at 1 agent steps" in f for f in check_evolution(tables))


def test_a_policy_in_training_cannot_wait_for_a_decision(sound: Tables) -> None:
    training = [
        trainee.policy
        for row in sound.assignments.values()
        if row.kind == "train"
        for trainee in row.message.trainees  # type: ignore[union-attr]
    ]
    assert training
    tables = copy.copy(sound)
    tables.policies = sound.policies.copy()
    policy(tables, training[0], pending={"kind": "explore"})
    assert any("it is in training" in fault for fault in check_evolution(tables))


def test_who_begins_anew_may_have_no_checkpoint(sound: Tables) -> None:
    tables = copy.copy(sound)
    row = last(tables, P1)
    at = sound.policies[P1].agent_steps
    for cause, begin, expected in (
        ("immigrate", at, True),
        ("reset", at, True),
        ("exploit", at, False),
        ("immigrate", at - 1, False),
    ):
        changed = replace(row, cause=cause, agent_steps_begin=begin)
        tables.generations = sound.generations.copy()
        tables.generations[row.entrant] = changed
        assert begins_anew(sound.policies[P1], tables) is expected
