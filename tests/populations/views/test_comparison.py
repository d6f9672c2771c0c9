"""Curves of several runs together, against numbers that were worked out by hand."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from arena.errors import ConfigError
from arena.types import Entrant
from populations.views.questions.comparison import comparison
from populations.views.questions.inspection import Inspection
from tests.populations.rows import make_ratings
from tests.populations.small_run import SmallRun

P0, P1 = "player/p000", "player/p001"


def make_run(
    run_dir: Path, ratings: Mapping[str, tuple[float, ...]], *, wins_as_home: bool
) -> Path:
    """A run with a rating of each checkpoint, at 100, 200 and 300 agent steps."""
    run_dir.mkdir()
    run = SmallRun(run_dir)
    with run.journal:
        rated = {
            Entrant(row.weights_digest): rating
            for policy, own in ratings.items()
            for row, rating in zip(run.checkpoints_of(policy), own, strict=True)
        }
        first = run.checkpoints_of(P0)[0].weights_digest
        # The first policy gets a win and a draw of four matches, the second one the rest.
        run.evaluate(*(("bot:random", first) if wins_as_home else (first, "bot:random")))
        run.put(replace(run.tables.run, run=run_dir.name))
        run.put(
            make_ratings(
                entrants=tuple(rated),
                ratings=tuple(rated.values()),
                deviations=(20.0,) * len(rated),
                num_tallies=run.tables.num_tallies,
            )
        )
    return run_dir


@contextmanager
def inspected(*run_dirs: Path) -> Iterator[list[Inspection]]:
    with ExitStack() as stack:
        yield [stack.enter_context(closing(Inspection.open(path))) for path in run_dirs]


def curve_of(*run_dirs: Path) -> list[dict[str, Any]]:
    with inspected(*run_dirs) as runs:
        document: Any = comparison(runs)
    return list(document["populations"]["player"])


def test_the_mean_over_runs_has_the_interval_of_students_t(tmp_path: Path) -> None:
    one = make_run(
        tmp_path / "one", {P0: (10.0, 30.0, 20.0), P1: (0.0, 25.0, 50.0)}, wins_as_home=False
    )
    two = make_run(tmp_path / "two", {P0: (20.0, 50.0, 60.0)}, wins_as_home=True)
    points = curve_of(one, two)
    assert [point["agent_steps"] for point in points] == [15 * n for n in range(1, 21)]
    # No policy is rated before 100 agent steps; there the best policies have 10 and 20.
    assert (points[5]["rating"], points[5]["rating_runs"]) == (None, 0)
    assert (points[6]["rating"], points[13]["rating"]) == (15.0, 40.0)
    # The ratings are 50 and 60: t_1 = 12.706, s = 7.071, so 12.706 * 7.071 / sqrt(2) = 63.53
    last = points[-1]
    assert (last["rating"], last["rating_runs"]) == (55.0, 2)
    assert last["rating_low"] == pytest.approx(55.0 - 63.53, abs=0.01)
    assert last["rating_high"] == pytest.approx(55.0 + 63.53, abs=0.01)
    # The scores are 1.5 of 4 and 2.5 of 4, at the checkpoints of 100 agent steps; the interval ends
    # at 0 and 1.
    assert (points[6]["score"], points[6]["score_runs"]) == (0.5, 2)
    assert (points[6]["score_low"], points[6]["score_high"]) == (0.0, 1.0)
    assert [point["score"] for point in points if point is not points[6]] == [None] * 19


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    one = make_run(tmp_path / "one", {P0: (1.0, 2.0, 3.0)}, wins_as_home=True)
    shutil.copytree(one, tmp_path / "copy")
    with inspected(one) as runs, pytest.raises(ConfigError, match="two or more runs, got 1"):
        comparison(runs)
    with inspected(one, tmp_path / "copy") as runs, pytest.raises(ConfigError, match="one again"):
        comparison(runs)
    two = make_run(tmp_path / "two", {}, wins_as_home=True)
    assert curve_of(one, two) == [], "nothing is rated in the second one"
    with inspected(one, two) as runs, pytest.raises(ConfigError, match="the runs have player"):
        comparison(runs, population="prey")
