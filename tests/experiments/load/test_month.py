from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from experiments.load.month import measure
from populations.controller import result_merging
from populations.storage.database import JOURNAL
from populations.storage.journal import JournalReader


@pytest.mark.slow
def test_hours_that_pass_quickly_leave_a_sound_run_that_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # As after weeks: a fit has room for nobody that nothing asks for.
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
        # Each change of the configuration is a resume.
        assert reader.load().run.epoch == 5
        assert [row for row in reader.archives() if row.file]
    assert {"ghosts_thinned", "results_merged", "checkpoint_rows_removed"} <= kinds
