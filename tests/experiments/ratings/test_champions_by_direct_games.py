"""What `experiments.ratings.champions_by_direct_games` makes of scores and lines."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from experiments.ratings.champions_by_direct_games import elo, main


def test_a_score_is_a_rating() -> None:
    assert elo(10 / 11) == pytest.approx(400.0)
    assert elo(0.5) == 0.0
    assert elo(1.0) == math.inf
    assert elo(0.0) == -math.inf


def test_what_is_over_is_not_done_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "direct.jsonl"
    line = {
        "game": "kuhn",
        "seed": 1,
        "seconds": 120.0,
        "asked": 4000,
        "overrides": [],
        "league": [10.0, 50.0],
        "direct": [40.0, 60.0],
        "overlap": True,
        "misfit": 4.5,
        "pair_deviation": 30.0,
    }
    out.write_text(json.dumps(line) + "\n" + '{"game": "cut o')
    main(["--out", str(out), "--games", "kuhn"])
    assert capsys.readouterr().out.splitlines()[-1] == (
        "| kuhn | 1 | [10, 50] | [40, 60] | True | 4.5* | 30.0 |"
    )
