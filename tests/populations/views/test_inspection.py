"""A run at one moment: what views share."""

from __future__ import annotations

from pathlib import Path

import pytest

from arena.types import RANDOM_BOT, Digest, Entrant
from experiments.planted_league.week import Size, write_long_league
from populations.controller.rating_fit import fit_ratings
from populations.controller.rating_input import FitInput
from populations.league.ratings import Ratings
from populations.storage.journal import JournalReader
from populations.views.league import ratings_document
from populations.views.players import champion_document
from populations.views.questions import inspection as ratings
from populations.views.questions.inspection import RATING, CheckpointFit, Inspection, folded
from populations.views.training import lineage_document

SIZE = Size(checkpoints=6, evaluated_every=2, ghosts_every=2, pairs=4, met=4)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_long_league(tmp_path, SIZE, num_policies=4)
    return tmp_path


def test_views_of_one_inspection_share_a_fit(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fits = []

    def counted(known: FitInput) -> dict[str, Ratings]:
        fits.append(known)
        return fit_ratings(known)

    monkeypatch.setattr(ratings, "fit_ratings", counted)
    inspection = Inspection.open(run)
    # Stored ratings need no fit.
    ratings_document(inspection, None)
    assert not fits
    for view in (lineage_document, champion_document):
        view(inspection, None)
    inspection.close()
    assert len(fits) == 1


def test_results_of_training_rate_nothing_and_are_not_read(run: Path) -> None:
    inspection = Inspection.open(run)
    fit = inspection.rated
    with JournalReader(run / "journal.db") as reader:
        whole = reader.load()
    assert {row.kind for row in whole.pairs.values()} == {"train", "evaluate"}
    assert fit.tables.pairs == {key: row for key, row in whole.pairs.items() if row.kind in RATING}
    assert len(fit.tables.pairs) < len(whole.pairs)
    of_all = CheckpointFit(folded(whole, inspection.run_file, run))
    inspection.close()
    found = fit.intervals()
    assert found == of_all.intervals()
    assert found["player", Entrant(RANDOM_BOT)].rating == 0.0
    checkpoints = {row.weights_digest for row in whole.checkpoints.values()}
    assert {Digest(entrant) for _, entrant in found} - {Digest(RANDOM_BOT)} <= checkpoints


def test_kinds_of_results_are_read_in_their_order(run: Path) -> None:
    with JournalReader(run / "journal.db") as reader:
        whole = list(reader.load().pairs)
        for kinds in ((), ("train",), ("evaluate",), ("train", "evaluate"), ("merged",)):
            found = list(reader.load(pairs=kinds).pairs)
            assert found == [key for key in whole if key[0] in kinds]
