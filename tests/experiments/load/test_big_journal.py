from __future__ import annotations

from pathlib import Path

from experiments.load.big_journal import Size, write_run
from experiments.load.bounds import controller
from populations.audit.tally_checks import differences, refold
from populations.config.run_file import RunFile, learner_setup
from populations.storage.journal import JournalReader
from populations.views.league import payoff_document, standings_document
from populations.views.questions.inspection import Inspection

SIZE = Size(policies=3, assignments=12, ghosts=4, opponents=3, evaluations=9, pairings=6, matches=8)


def test_it_is_what_a_controller_would_have_written(tmp_path: Path) -> None:
    matches = write_run(tmp_path, SIZE)
    run_file = RunFile.load(tmp_path / "run.yaml")
    with JournalReader(tmp_path / "journal.db") as reader:
        tables = reader.load()
        folded = refold(
            reader.all_tallies(),
            seats=learner_setup(run_file, root=tmp_path).seats,
            half_life_matches=run_file.config.payoffs.half_life_matches,
        )
        assert list(differences(tables, folded)) == []
        assert sum(row.tally.matches for row in reader.tallies()) == matches == tables.run.matches
    assert (len(tables.policies), len(tables.checkpoints), len(tables.ghosts)) == (3, 36, 12)
    run = Inspection.open(tmp_path)
    try:
        lines = run.standings()["player"]
        assert sorted(line.kind for line in lines) == ["bot", *["ghost"] * 12, *["policy"] * 3]
        assert sum(line.matches for line in lines if line.kind == "bot") == 9 * 2 * 8
        assert (
            standings_document(run, "player")["populations"]
            == standings_document(run, None)["populations"]
        )
        cells = payoff_document(run, None, by_seats=True)["payoff"]
        assert isinstance(cells, list)
        assert cells
    finally:
        run.close()


def test_the_controller_takes_it_without_torch(tmp_path: Path) -> None:
    write_run(tmp_path, SIZE)
    figures = controller(tmp_path)
    assert figures["tallies"] > 0
    assert figures["memory_mb"] > 1.0
    assert figures["opponents_ms"] > 0.0
