"""Whole leagues with lineage: the intervals of their final ratings, against the planted skills."""

from __future__ import annotations

import json

import numpy as np
import pytest

from experiments.planted_league.coverage import clustered, league_error, main


@pytest.mark.slow
def test_intervals_of_whole_leagues_hold_the_truth() -> None:
    # With a prior that expects nothing of children these held 50 to 60%, at a bias of -90 Elo.
    leagues = [league_error(16, seed=seed) for seed in (100, 101, 102)]
    assert np.mean([league.ratings for league in leagues]) >= 0.85
    assert np.mean([league.differences for league in leagues]) >= 0.85
    assert abs(np.mean([league.bias for league in leagues])) < 60.0
    assert max(league.misfit for league in leagues) < 4.0


@pytest.mark.slow
def test_intervals_hold_the_truth_where_two_populations_leave_many_ghosts() -> None:
    # With a prior of equal width for each step, however short, none of these intervals held it, at
    # biases of 270 and 290 Elo: each copy of a lucky policy was believed, 50 times in a line.
    overrides = (
        "ghosts.keep=null",
        "ghosts.every_agent_steps=40000",
        "pbt.min_matches=60",
        "pbt.min_rating_gap=30",
        "evaluation.share=0.1",
    )
    leagues = [
        league_error(4, seed=seed, preset="simple_tag", overrides=overrides) for seed in (12, 13)
    ]
    assert np.mean([league.ratings for league in leagues]) >= 0.85
    assert np.mean([league.ghosts for league in leagues]) >= 0.9
    assert abs(np.mean([league.bias for league in leagues])) < 100.0


def test_the_experiment_prints_a_document_per_size(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--policies", "2", "--leagues", "2", "--draw-rate", "0.2", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["policies"] == document["leagues"] == 2
    assert 0.0 <= document["differences"][0] <= 1.0


def test_the_unit_is_the_league() -> None:
    # Deviation of 0, 1, 1, 0: sqrt(1/3); 1.96 / sqrt(4) times that.
    mean, half = clustered([0.0, 1.0, 1.0, 0.0])
    assert mean == 0.5
    assert half == pytest.approx(0.98 * np.sqrt(1 / 3), abs=1e-3)
