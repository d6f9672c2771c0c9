"""A league that is written for measurements is one that a controller and views take."""

from __future__ import annotations

from pathlib import Path

from experiments.load.bounds import controller
from experiments.planted_league.week import Size, write_long_league
from populations.views.league import payoff_document, standings_document
from populations.views.questions.inspection import Inspection

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
