from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import numpy as np
import pytest

from populations.candidates import Candidate, FloatArray
from populations.matchmaking.psro import MetaSolver, PsroRule, solved
from tests.populations.matchmaking.toy_league import ghost, request

SOLVERS = get_args(MetaSolver)
GHOSTS = [ghost(10 * number) for number in range(4)]
# Rock beats scissors beats paper beats rock, each with 90%; the fourth loses to all.
CYCLE = np.array(
    [[0.5, 0.1, 0.9, 0.9], [0.9, 0.5, 0.1, 0.9], [0.1, 0.9, 0.5, 0.9], [0.1, 0.1, 0.1, 0.5]]
)


def weights(
    solver: MetaSolver,
    *,
    scores: FloatArray = CYCLE,
    ghosts: list[Candidate] = GHOSTS,
    rates: Mapping[str, float] | None = None,
    ratings: Mapping[str, float] | None = None,
    max_players: int = 32,
) -> list[float]:
    asked = request(ghosts=ghosts, scores=scores, rates=rates, ratings=ratings)
    rule = PsroRule(meta_solver=solver, psro_players=max_players)
    found: list[float] = rule.weights(asked, rng=np.random.default_rng(0)).tolist()
    return found


def test_nash_of_rock_paper_scissors() -> None:
    assert weights("nash") == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0.0], abs=1e-6)


def test_projected_replicator_dynamics_come_near_nash() -> None:
    assert weights("prd") == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0.0], abs=0.05)


def test_alpha_rank_of_rock_paper_scissors() -> None:
    assert weights("alpha_rank") == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0.0], abs=1e-3)


def test_solvers_that_look_at_age_only() -> None:
    shuffled = [GHOSTS[index] for index in (2, 0, 3, 1)]
    assert weights("uniform", ghosts=shuffled) == [0.25] * 4
    assert weights("latest", ghosts=shuffled) == [0.0, 0.0, 1.0, 0.0]
    # softmax of 0, 1, 2, 3 in the order of age
    expected = np.exp([2.0, 0.0, 3.0, 1.0])
    assert weights("uniform_biased", ghosts=shuffled) == pytest.approx(expected / expected.sum())


def test_rectified_is_nash_of_those_whom_the_trainee_beats_or_ties_with() -> None:
    rates: dict[str, float] = {GHOSTS[0].player: 0.9, GHOSTS[1].player: 0.2}
    # the third was never met: even
    expected = [0.5, 0.0, 0.5, 0.0]
    assert weights("rectified", rates=rates) == pytest.approx(expected, abs=1e-6)
    nobody: dict[str, float] = {row.player: 0.2 for row in GHOSTS}
    assert weights("rectified", rates=nobody) == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0], abs=1e-6)


def test_a_large_league_plays_with_its_best_and_its_newest() -> None:
    ghosts = [ghost(10 * number) for number in range(8)]
    ratings: dict[str, float] = {ghosts[index].player: 1000.0 + index for index in (1, 2, 3)}
    found = weights("uniform", ghosts=ghosts, ratings=ratings, max_players=4)
    # the best rated two, 2 and 3, and the newest two of the others
    assert found == [0.0, 0.0, 0.25, 0.25, 0.0, 0.0, 0.25, 0.25]
    unrated = weights("uniform", ghosts=ghosts, max_players=4)
    assert sum(unrated) == pytest.approx(1.0)
    assert np.count_nonzero(unrated) == 4


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(
    "scores", [np.full((3, 3), 0.5), np.array([[0.5, 1, 1], [0, 0.5, 1], [0, 0, 0.5]])]
)
def test_no_solver_breaks_on_a_game_without_contest(solver: MetaSolver, scores: FloatArray) -> None:
    for size in (1, 2, 3):
        found = weights(solver, ghosts=GHOSTS[:size], scores=scores[:size, :size])
        assert np.isfinite(found).all()
        assert min(found) >= 0.0
        assert sum(found) == pytest.approx(1.0)


def test_a_game_is_solved_once() -> None:
    solved.cache_clear()
    for _ in range(3):
        weights("nash")
    assert solved.cache_info().misses == 1
    strategy = solved("nash", np.array([0, 9, -9, 0], dtype=np.int16).tobytes())
    assert not strategy.flags.writeable
