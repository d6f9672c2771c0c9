"""Folding as one goes, going on from stored rows, and folding all tallies again: the same bits."""

from __future__ import annotations

import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from arena.checkpoints.manifest import WEIGHTS
from arena.types import Digest, Entrant, PairScore, PolicyId, Seat, Tally
from populations.audit.repair import MENDED, repair_run
from populations.audit.tally_checks import differences, refold
from populations.audit.verify import verify_run
from populations.config.run_file import RUN_FILE
from populations.errors import JournalCorrupt, StorageError
from populations.league.league import League
from populations.records.aggregates import Row
from populations.records.rows import CheckpointRow, RunRow
from populations.storage.database import BACKUP, JOURNAL
from populations.storage.journal import Journal, JournalReader
from populations.views.questions.inspection import Inspection
from tests.populations.payoffs import record, records
from tests.populations.rows import (
    make_checkpoint,
    make_policy,
    make_ratings,
    make_tally,
    make_tally_row,
    tables_with,
)
from tests.populations.small_run import SmallRun
from tests.support import tables_of

HALF_LIFE = 7.0
ENTRANTS = [Entrant(name) for name in ("bot:random", "d" * 64, "e" * 64, "player/p000#1")]
LAYOUTS = {
    "duel": (("x", "player"), ("y", "player")),
    "tag": (("predators", "predator"), ("prey", "prey")),
    "teams": (("x", "player"), ("y", "player"), ("z", "player")),
    "cooperation": (("team", "agent"), ("team", "agent")),
}


def make_seats(layout: str) -> tuple[Seat, ...]:
    return tuple(
        Seat(name=f"seat {index}", side=side, population=population, agents=(f"a_{index}",))
        for index, (side, population) in enumerate(LAYOUTS[layout])
    )


@st.composite
def tallies(draw: st.DrawFn, num_seats: int) -> Tally:
    matches = draw(st.integers(1, 40))
    pairs = []
    for second in range(1, num_seats):
        for first in range(second):
            wins = draw(st.integers(0, matches))
            draws = draw(st.integers(0, matches - wins))
            losses = matches - wins - draws
            pairs.append(
                PairScore(first=first, second=second, wins=wins, draws=draws, losses=losses)
            )
    returns = st.floats(-1e6, 1e6)
    return Tally(
        entrants=tuple(draw(st.sampled_from(ENTRANTS)) for _ in range(num_seats)),
        matches=matches,
        pairs=tuple(pairs),
        return_sum=tuple(draw(returns) for _ in range(num_seats)),
        return_sum_of_squares=tuple(abs(draw(returns)) for _ in range(num_seats)),
        length_sum=matches,
    )


def state_of(league: League) -> object:
    """All that a league says, exactly."""
    payoff = league.payoff
    per_seat = {
        (first, second, seats): record(payoff, first, second, seats=seats)
        for first in ENTRANTS
        for second in ENTRANTS
        for seats in ((0, 1), (1, 0), (0, 2), (2, 1))
    }
    return repr(
        (
            list(league.tables.records.items()),
            sorted((key, tuple(value)) for key, value in league.results.items()),
            sorted(records(payoff).items()),
            per_seat,
            league.tables.last_evaluation_sequence,
        )
    )


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
@pytest.mark.slow
def test_what_is_kept_is_what_all_tallies_add_up_to(layout: str, data: st.DataObject) -> None:
    seats = make_seats(layout)
    league = League(tables_with(), seats=seats, half_life_matches=HALF_LIFE)
    num_tallies = 0
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "journal.db")
        with Journal.create(path, [RunRow(run="r")]) as journal:
            for _ in range(data.draw(st.integers(0, 6))):
                rows: list[Row] = []
                for _ in range(data.draw(st.integers(1, 5))):
                    num_tallies += 1
                    kind: Literal["train", "evaluate"] = data.draw(
                        st.sampled_from(["train", "evaluate"])
                    )
                    row = make_tally_row(data.draw(tallies(len(seats))), num_tallies, kind=kind)
                    league.tables.put(row)
                    rows += [row, *league.add_tally(row)]
                journal.commit(rows)
                again = League(journal.load(), seats=seats, half_life_matches=HALF_LIFE)
                assert state_of(again) == state_of(league)
                if data.draw(st.booleans()):
                    league = again
        with JournalReader(path) as reader:
            tables = reader.load()
            folded = refold(reader.all_tallies(), seats=seats, half_life_matches=HALF_LIFE)
            evaluated = [row.tally for row in reader.tallies() if row.kind == "evaluate"]
    assert list(differences(tables, folded)) == []
    assert list(folded.records) == list(tables.records)
    assert list(folded.pairs) == list(tables.pairs)
    matches: Counter[tuple[str, str]] = Counter()
    for tally in evaluated:
        seated = [
            (seat.population, entrant) for seat, entrant in zip(seats, tally.entrants, strict=True)
        ]
        if len(set(seated)) > 1:  # a player that only plays itself shows nothing
            for key in seated:
                matches[key] += tally.matches
    assert {key: row.matches for key, row in tables.records.items()} == dict(matches)


def checkpoint(name: str, *, parent: str | None, generation: int = 0) -> CheckpointRow:
    return make_checkpoint(
        name,
        weights_digest=name * 64,
        generation=generation,
        agent_steps=ord(name),
        parent=None if parent is None else Digest(parent * 64),
    )


def evaluated(league: League, *names: str) -> None:
    league.add_tally(
        make_tally_row(
            make_tally(
                tuple(name * 64 for name in names),
                (0, 1, 4, 0, 0),
                return_sum=(1.0, 2.0),
                return_sum_of_squares=(1.0, 2.0),
                length_sum=4,
            )
        )
    )


@given(
    parents=st.lists(st.integers(-1, 8), min_size=1, max_size=9),
    order=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=8),
)
def test_remembered_standings_are_those_of_a_walk(
    parents: list[int], order: list[tuple[int, int]]
) -> None:
    """Each answer is asked for before and after every evaluation."""
    names = [chr(ord("a") + index) for index in range(len(parents))]
    league = League(tables_with(), seats=make_seats("duel"), half_life_matches=HALF_LIFE)
    for index, parent in enumerate(parents):
        above = names[parent] if 0 <= parent < index else None
        league.tables.put(checkpoint(names[index], parent=above))
    for first, second in [(0, 0), *order]:
        for name in names:
            policy = make_policy(checkpoint=name)
            digest = Digest(name * 64)
            line = [digest, *league.ancestors(digest)]
            found = [other for other in line if league.is_evaluated("player", other)]
            assert league.standing_weights(policy) == (found[0] if found else None)
        if max(first, second) < len(names) and first != second:
            evaluated(league, names[first], names[second])


def test_matches_count_for_the_generation_that_made_the_weights() -> None:
    league = League(tables_with(), seats=make_seats("duel"), half_life_matches=HALF_LIFE)
    for name, generation in (("a", 0), ("b", 1), ("c", 1)):
        league.tables.put(checkpoint(name, parent=None, generation=generation))
    evaluated(league, "a", "b")
    evaluated(league, "c", "b")
    policy = make_policy(generation=1)
    again = League(league.tables, seats=league.seats, half_life_matches=HALF_LIFE)
    for one in (league, again):
        assert one.matches_in_generation(policy) == 4 + 4 + 4
        assert one.matches_in_generation(replace(policy, generation=0)) == 4


P0, P1 = PolicyId("player/p000"), PolicyId("player/p001")
BOT = "bot:random"


@pytest.fixture
def run(tmp_path: Path) -> SmallRun:
    """A run with evaluations and ratings, backed up, that has gone on since."""
    run = SmallRun(tmp_path)
    with run.journal:
        run.put(replace(run.tables.run, run=run.run_file.run))
        first, second = (run.checkpoints_of(policy)[-1].weights_digest for policy in (P0, P1))
        for _ in range(3):
            run.evaluate(first, second)
            run.evaluate(first, BOT)
        run.snapshot(run.checkpoints_of(P0)[0])
        run.note("noted", "", what="before the backup")
        entrants = (Entrant(first), Entrant(second), Entrant(BOT))
        ratings, num_tallies = (50.0, 100.0, 0.0), run.tables.num_tallies
        run.put(
            make_ratings(
                entrants=entrants,
                ratings=ratings,
                deviations=(9.0, 9.0, 0.0),
                num_tallies=num_tallies,
            )
        )
        run.journal.backup(tmp_path / BACKUP)
    return run


def change(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute(sql).rowcount == 1
        connection.commit()


MENDABLE = {
    "records": "UPDATE records SET wins = wins + 1 WHERE rowid = 1",
    "records' key": "UPDATE records SET entrant = 'bot:other' WHERE rowid = 2",
    "pairs": "UPDATE pairs SET losses = losses * 2 WHERE rowid = 1",
    "tallies": "UPDATE tallies SET assignment_id = assignment_id + 1 WHERE sequence = 3",
    "tallies' key": "UPDATE tallies SET sequence = 1000 WHERE sequence = 3",
    "assignments": "UPDATE assignments SET duration_s = 3.5 WHERE assignment_id = 2",
    "events": 'UPDATE events SET data = \'{"what":"else"}\' WHERE sequence = 1',
    "no UTF-8": "UPDATE events SET kind = CAST(X'ff6e' AS TEXT) WHERE sequence = 1",
}


@pytest.mark.parametrize("sql", MENDABLE.values(), ids=MENDABLE)
def test_a_flipped_value_is_found_and_made_again(run: SmallRun, sql: str) -> None:
    before = tables_of(run.run_dir)
    assert verify_run(run.run_dir).faults == []
    change(run.run_dir / JOURNAL, sql)
    assert verify_run(run.run_dir).faults
    repair = repair_run(run.run_dir, utc="now")
    assert not repair.restored
    assert [event.kind for event in repair.events] == [MENDED]
    assert verify_run(run.run_dir).faults == []
    before.num_events += 1
    assert tables_of(run.run_dir) == before


def test_ratings_are_fitted_again(run: SmallRun) -> None:
    with closing(sqlite3.connect(run.run_dir / JOURNAL)) as connection:
        (packed,) = connection.execute("SELECT ratings FROM ratings").fetchone()
    flipped = bytes([*packed[:7], packed[7] ^ 0x80, *packed[8:]]).hex()
    change(run.run_dir / JOURNAL, f"UPDATE ratings SET ratings = X'{flipped}'")
    (fault,) = verify_run(run.run_dir).faults
    assert "a row of ratings is damaged" in fault
    repair_run(run.run_dir)
    assert verify_run(run.run_dir).faults == []
    (row,) = tables_of(run.run_dir).ratings.values()
    by_entrant = dict(zip(row.entrants, row.ratings, strict=True))
    first, second = (run_row.weights_digest for run_row in newest(run))
    # Of 4 matches the second wins 2 and loses 1 against the first, and so does the bot.
    assert by_entrant[Entrant(first)] < by_entrant[Entrant(second)]
    assert by_entrant[Entrant(BOT)] == 0.0


def newest(run: SmallRun) -> list[CheckpointRow]:
    tables = tables_of(run.run_dir)
    return [
        [row for row in tables.checkpoints.values() if row.policy == policy][-1]
        for policy in (P0, P1)
    ]


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE policies SET agent_steps = agent_steps + 1 WHERE rowid = 1",
        "UPDATE run SET matches = matches + 1",
        "UPDATE checkpoints SET learner_updates = 9 WHERE rowid = 1",
        "UPDATE ghosts SET quality = 0.5",
        "DELETE FROM run",
    ],
)
def test_a_row_without_a_second_place_restores_the_backup(run: SmallRun, sql: str) -> None:
    before = tables_of(run.run_dir)
    change(run.run_dir / JOURNAL, sql)
    assert verify_run(run.run_dir).faults
    assert repair_run(run.run_dir).restored
    assert verify_run(run.run_dir).faults == []
    assert tables_of(run.run_dir).policies == before.policies


def test_a_detail_since_the_backup_is_lost_with_what_came_after(run: SmallRun) -> None:
    run.journal = Journal.open(run.run_dir / JOURNAL)
    with run.journal:
        run.note("noted", "", what="after the backup")
    change(run.run_dir / JOURNAL, "UPDATE events SET time = 'then' WHERE sequence = 2")
    assert repair_run(run.run_dir).restored


def contents(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def test_sums_that_nothing_can_be_added_up_to_stay_as_they_are(run: SmallRun) -> None:
    """A damaged row of sums, the archive of what they sum is lost, and there is no backup."""
    run.journal = Journal.open(run.run_dir / JOURNAL)
    with run.journal:
        run.archive()
    for file in (run.run_dir / "archive").iterdir():
        file.unlink()
    (run.run_dir / BACKUP).unlink()
    change(run.run_dir / JOURNAL, MENDABLE["pairs"])
    before = contents(run.run_dir / JOURNAL)
    with pytest.raises(StorageError, match="Nothing was changed"):
        repair_run(run.run_dir)
    assert contents(run.run_dir / JOURNAL) == before


def test_a_kill_while_rows_are_mended_changes_none(
    run: SmallRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums are not committed without what they sum, whatever ends the repair."""
    change(run.run_dir / JOURNAL, MENDABLE["tallies"])
    change(run.run_dir / JOURNAL, MENDABLE["pairs"])
    before = contents(run.run_dir / JOURNAL)

    def killed(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("populations.audit.repair.refold", killed)
        with pytest.raises(KeyboardInterrupt):
            repair_run(run.run_dir)
    assert contents(run.run_dir / JOURNAL) == before
    repair_run(run.run_dir)
    assert verify_run(run.run_dir).faults == []


def test_a_damaged_row_does_not_reach_the_backup(run: SmallRun) -> None:
    before = (run.run_dir / BACKUP).read_bytes()
    change(run.run_dir / JOURNAL, "UPDATE policies SET speed = 7.0 WHERE rowid = 1")
    with Journal.open(run.run_dir / JOURNAL) as journal, pytest.raises(JournalCorrupt):
        journal.backup(run.run_dir / BACKUP)
    assert (run.run_dir / BACKUP).read_bytes() == before


def test_a_schema_whose_text_is_no_text_is_damage(run: SmallRun) -> None:
    path = run.run_dir / JOURNAL
    data = path.read_bytes()
    at = data.index(b"index" + b"assignments_status")
    path.write_bytes(data[:at] + b"\x86\xff" + data[at + 2 :])
    (fault,) = verify_run(run.run_dir).faults
    assert "damaged" in fault
    assert repair_run(run.run_dir).restored
    assert verify_run(run.run_dir).faults == []


def test_a_damaged_backup_is_made_anew(run: SmallRun) -> None:
    before = tables_of(run.run_dir)
    change(run.run_dir / BACKUP, "UPDATE policies SET speed = 7.0 WHERE rowid = 1")
    (fault,) = verify_run(run.run_dir).faults
    assert "a row of policies is damaged" in fault
    assert [event.kind for event in repair_run(run.run_dir).events] == ["backup_renewed"]
    assert verify_run(run.run_dir).faults == []
    with JournalReader(run.run_dir / BACKUP) as reader:
        assert reader.load().policies == before.policies


def test_a_run_file_that_says_something_else_is_found(run: SmallRun) -> None:
    path = run.run_dir / RUN_FILE
    text = path.read_text()
    path.write_text(text.replace("launch_directory: .", "launch_directory: /elsewhere"))
    assert verify_run(run.run_dir).faults == []
    path.write_text(text.replace("seed: 1", "seed: 3"))
    (fault,) = verify_run(run.run_dir).faults
    assert "says something else than the journal has recorded" in fault
    with pytest.raises(StorageError, match="says something else"):
        Inspection.open(run.run_dir)


def test_a_damaged_row_does_not_reach_the_archive(run: SmallRun) -> None:
    change(run.run_dir / JOURNAL, MENDABLE["assignments"])
    run.journal = Journal.open(run.run_dir / JOURNAL)
    with run.journal, pytest.raises(JournalCorrupt):
        run.archive()
    assert not list((run.run_dir / "archive").iterdir())


@pytest.fixture
def corrupted_run(tmp_path: Path) -> Iterator[SmallRun]:
    corrupted_run = SmallRun(tmp_path)
    with corrupted_run.journal:
        corrupted_run.put(replace(corrupted_run.tables.run, run=corrupted_run.run_file.run))
        corrupted_run.snapshot(corrupted_run.checkpoints_of(P0)[0])
        yield corrupted_run


def test_intact_checkpoints_that_were_called_corrupt_come_back(corrupted_run: SmallRun) -> None:
    tables = corrupted_run.tables
    newest = {policy: corrupted_run.checkpoints_of(policy)[-1].key for policy in (P0, P1)}
    truly = corrupted_run.checkpoints_of(P1)[0]
    (corrupted_run.run_dir / truly.key / WEIGHTS).write_bytes(b"damaged")
    corrupted_run.put(
        replace(tables.run, state="failed", reason="no active policy is left"),
        *(replace(row, state="corrupt") for row in tables.checkpoints.values()),
        *(replace(row, corrupt=True) for row in tables.ghosts.values()),
        # The policies fell back to their oldest checkpoints.
        *(
            replace(
                row, state="quarantined", checkpoint=corrupted_run.checkpoints_of(row.policy)[0].key
            )
            for row in tables.policies.values()
        ),
    )
    before = corrupted_run.tables
    corrupted_run.journal.close()
    repair = repair_run(corrupted_run.run_dir)
    with JournalReader(corrupted_run.run_dir / "journal.db") as reader:
        after = reader.load()
    assert {row.policy: row.checkpoint for row in after.policies.values()} == newest
    assert {row.state for row in after.policies.values()} == {"active"}
    states = {key: row.state for key, row in after.checkpoints.items()}
    assert states == {key: "corrupt" if key == truly.key else "present" for key in states}
    assert not any(row.corrupt for row in after.ghosts.values())
    assert verify_run(corrupted_run.run_dir).faults == []
    kinds = [event.kind for event in repair.events]
    assert kinds.count("checkpoint_restored") == len(before.checkpoints) - 1
    assert kinds.count("ghost_restored") == 1
    assert kinds.count("policy_restored") == 2
