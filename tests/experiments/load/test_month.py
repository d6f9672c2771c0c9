from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from experiments.load.bounds import controller
from experiments.load.month import measure
from experiments.planted_league.week import Size, write_long_league
from populations.controller import result_merging
from populations.storage.database import JOURNAL
from populations.storage.journal import JournalReader
from populations.views.league import payoff_document, standings_document
from populations.views.questions.inspection import Inspection


@pytest.mark.slow
def test_hours_that_pass_quickly_leave_a_sound_run_that_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # As after weeks, a fit only has room for players that are needed.
    monkeypatch.setattr(result_merging, "MAX_ENTRANTS", 0)
    monkeypatch.setattr(result_merging, "SLACK", 0)
    options = argparse.Namespace(
        ages=[0.3, 0.6],
        last_hours=0.05,
        every_h=1.0,
        coarseness=2,
        fit_factor=10.0,
        learners=2,
        policies=4,
        override=["ghosts.keep=16", "journal.keep_detail_hours=0.05"],
    )
    measure(tmp_path, options)
    *lines, verified = map(json.loads, capsys.readouterr().out.splitlines())
    assert [line["hours"] for line in lines] == pytest.approx([0.25, 0.3, 0.55, 0.6], abs=0.02)
    assert verified["faults"] == []
    assert all(line["rows"]["ghosts"] <= 20 for line in lines)
    assert lines[-1]["truth"]["ghost"]["number"] > 0
    with JournalReader(tmp_path / JOURNAL) as reader:
        kinds = {event.kind for event in reader.all_events()}
        # Each change of the configuration is a resume with a new epoch.
        assert reader.load().run.epoch == 5
        assert [row for row in reader.archives() if row.file]
    assert {"ghosts_thinned", "results_merged", "checkpoint_rows_removed"} <= kinds


SIZE = Size(checkpoints=12, evaluated_every=4, ghosts_every=3, pairs=6, met=3)


def test_views_show_what_was_written(tmp_path: Path) -> None:
    write_long_league(tmp_path, SIZE, num_policies=3)
    run = Inspection.open(tmp_path)
    try:
        lines = run.standings()["player"]
        assert sorted(line.kind for line in lines) == ["bot", *["ghost"] * 12, *["policy"] * 3]
        assert all(line.rating is not None for line in lines if line.kind == "bot")
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
    write_long_league(tmp_path, SIZE, num_policies=3)
    figures = controller(tmp_path)
    assert figures["results"] > 0
    assert figures["memory_mb"] > 1.0
    assert figures["opponents_ms"] > 0.0
